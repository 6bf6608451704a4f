"""The pages of the systems in a real Chromium: processes that serve them, and a watch over what the browser reports."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import Browser, BrowserContext, Page, expect

from holdfast import Holdfast

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SECONDS = 20_000
PHONE, DESK = {"width": 390, "height": 800}, {"width": 1000, "height": 800}
#: Text that must stay text: markup, a path out, invisible letters, and one that turns the direction of the rest.
HOSTILE = (
    "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\u202e\u200b'\"&lt;"
    + "W" * 300
)

#: The contrast between the text of an element and what is behind it, by WCAG's formula.
CONTRAST = """element => {
  const read = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ink = light(read(getComputedStyle(element).color));
  let ground = null;
  for (let at = element; at && !ground; at = at.parentElement) {
    const found = read(getComputedStyle(at).backgroundColor);
    if (found.length === 3 || found[3] > 0) ground = found;
  }
  const behind = light(ground || [255, 255, 255]);
  return (Math.max(ink, behind) + 0.05) / (Math.min(ink, behind) + 0.05);
}"""

#: The page does not look by itself any more, but only when it hears of a change.
ONLY_NEWS = "const real = setTimeout; window.setTimeout = (act, ms, ...more) => ms >= 3000 ? 0 : real(act, ms, ...more);"


class Visitor:
    """A browser with a cookie jar of its own; `said` has what its console and its content policy reported."""

    def __init__(self, context: BrowserContext) -> None:
        context.set_default_timeout(SECONDS)
        self.context, self.said = context, list[str]()

    def open(self, url: str) -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', event => console.error('policy: ' + event.violatedDirective))"
        )
        page.goto(url)
        return page

    def sign_in(self, url: str, key: str) -> Page:
        """Open the page as the address of `make run` does."""
        page = self.open(f"{url}/#key={key}")
        expect(page.locator("#app")).to_be_visible(timeout=SECONDS)
        return page


@contextlib.contextmanager
def visitor(browser: Browser, **options: Any) -> Iterator[Visitor]:
    with browser.new_context(**{"viewport": DESK, **options}) as context:
        yield Visitor(context)


@contextlib.contextmanager
def running(
    environment: Mapping[str, str], web: str, *others: tuple[str, ...], log: Path | None = None
) -> Iterator[str]:
    """Run the module *web*, and other modules with their arguments; yield the address of the web app."""
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context((log or Path("/dev/null")).open("w"))

        def start(*words: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", *words]
            process = subprocess.Popen(
                command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, stderr=errors, text=True
            )
            stack.callback(_end, process)
            return process

        site = start(web, "--port", "0")
        assert site.stdout is not None
        line = site.stdout.readline()
        assert line.startswith("ready: "), f"{web} said {line!r}"
        for words in others:
            start(*words)
        yield line.split()[1]


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def apart(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it in an event loop of its own, in a thread: playwright has one in this."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(function())).result()


def in_store(url: str, ask: Callable[[Holdfast], Coroutine[Any, Any, T]], **options: Any) -> T:
    """What *ask* finds in the store that the processes use."""

    async def opened() -> T:
        async with Holdfast(url, **options) as app:
            return await ask(app)

    return apart(opened)


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

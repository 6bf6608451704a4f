"""Take the pictures of the queue page in docs/img: `python -m tools.pictures`.

This needs Chromium, and half a minute. It starts the converter as `make run` does, in a temporary folder,
sends it files while its gateway works, fails and is slow, and takes pictures of a desktop page in light mode
and a phone page in dark mode. Run it when the page has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from playwright.sync_api import Browser, FilePayload, Locator, Page, expect, sync_playwright

from holdfast import UsageError
from systems.converter.samples import article, invoice, plain
from systems.screenshots.browser.chromium import find_program

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "img"
SECONDS = 30_000


def main() -> int:
    try:
        program = find_program(os.environ)
    except UsageError as missing:
        print(f"pictures: {missing}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="pictures-") as place, sync_playwright() as playwright:
        with _converter(Path(place)) as (address, faults):
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            _take(browser, address, faults, f"sqlite:///{place}/converter.db")
            browser.close()
    return 0


@contextlib.contextmanager
def _converter(data: Path) -> Iterator[tuple[str, str]]:
    """Run the converter, and yield the addresses of its page and of the gateway's fault switch."""
    command = [sys.executable, "-m", "systems.converter.run", "--port", "0", "--data", str(data)]
    environment = os.environ | {
        "RETRY_BASE_DELAY_MS": "25000",
        "RETRY_JITTER_MAX_MS": "0",
    }  # long enough to take a picture of a waiting job
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = ""
        try:
            while "Ctrl-C" not in output:
                line = process.stdout.readline()
                assert line, "the converter ended before it was ready"
                output += line
            [address], [faults] = re.findall(r"ready: (\S+)", output), re.findall(r"(\S+/faults)", output)
            yield address, faults
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def _take(browser: Browser, address: str, faults: str, database: str) -> None:
    desktop = browser.new_context(viewport={"width": 900, "height": 860}, color_scheme="light")
    page = desktop.new_page()
    page.goto(address)
    page.select_option("#mapping", "jats")
    _send(page, "What it costs to lose no job.pdf", article(), "Complete")
    _send(page, "Invoice 2026-0117.pdf", invoice(), "Complete")
    _send(page, "holiday.pdf", b"a picture, in truth", "Failed")
    _fault(faults, status=502)
    _send(page, "Harbour log, March.pdf", plain(words="Fair wind."), "Queued")
    expect(_row(page, "Harbour log, March.pdf")).to_contain_text("Next try in", timeout=SECONDS)
    _fault(faults, latency_ms=20_000)
    _send(page, "Brief an Frau Weiß.pdf", plain(words="Sehr geehrte Frau Weiß"), "Converting")
    page.screenshot(path=PLACE / "queue-light.png")

    pause = [sys.executable, "-m", "holdfast", "queues", "pause", "convert", "--url", database]
    subprocess.run(pause, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    phone = browser.new_context(
        viewport={"width": 360, "height": 780}, color_scheme="dark", storage_state=desktop.storage_state()
    )
    page = phone.new_page()
    page.goto(address)
    expect(page.locator("#banner")).to_be_visible(timeout=SECONDS)
    expect(_row(page, "Harbour log, March.pdf")).to_be_visible(timeout=SECONDS)
    page.screenshot(path=PLACE / "queue-phone-dark.png")


def _send(page: Page, name: str, content: bytes, until: str) -> None:
    page.set_input_files("#file", FilePayload(name=name, mimeType="application/pdf", buffer=content))
    expect(_row(page, name).locator(".state")).to_have_text(until, timeout=SECONDS)


def _row(page: Page, name: str) -> Locator:
    return page.locator(".row", has_text=name)


def _fault(address: str, **fault: int) -> None:
    request = Request(address, json.dumps(fault).encode(), {"content-type": "application/json"})
    build_opener(ProxyHandler({})).open(request, timeout=10).close()


if __name__ == "__main__":
    sys.exit(main())

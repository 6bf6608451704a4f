"""One job before the camera: a context of its own, a port of the guard of its own, and an end for every way it can go.

```text
work (open, load, wait, capture) ──▶ Picture          whichever is first: work, trouble or time
trouble (blocked, too much, crash, no end of dialogs) ──▶ ShotFailed
```
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

from playwright.async_api import BrowserContext, CDPSession, Dialog, Frame, Page
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from holdfast.logs import Log
from systems.screenshots.browser.capture import capture, painted
from systems.screenshots.browser.chromium import Chromium
from systems.screenshots.browser.limits import Limits
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Guard, Trouble
from systems.screenshots.shot import Picture, Shot

log = Log("screenshots.browser")

#: On a busy machine a page may take seconds to close; and to end the browser ends all other pages with it.
_CLOSE_SECONDS = 5.0
#: How often a page that navigates right after its load is followed.
_HOPS = 5
_ADDRESS = re.compile(r"(?<![a-z-])[a-z-]++://\S+", re.IGNORECASE)
_TROUBLES = {Trouble.BLOCKED: Code.TARGET_NOT_ALLOWED, Trouble.TOO_MUCH: Code.PAGE_TOO_LARGE}
#: Chromium's words → ours. What is not here could not be reached.
_WORDS = (
    ("ERR_CERT_", Code.BAD_CERTIFICATE),
    ("ERR_TIMED_OUT", Code.NAVIGATION_TIMEOUT),
    ("ERR_CONNECTION_TIMED_OUT", Code.NAVIGATION_TIMEOUT),
    ("ERR_ABORTED", Code.NOT_A_PAGE),
    ("ERR_INVALID_RESPONSE", Code.NOT_A_PAGE),
    ("ERR_TOO_MANY_REDIRECTS", Code.NOT_A_PAGE),
    ("ERR_UNSAFE_", Code.TARGET_NOT_ALLOWED),
    ("ERR_DISALLOWED_URL_SCHEME", Code.TARGET_NOT_ALLOWED),
    ("ERR_UNKNOWN_URL_SCHEME", Code.TARGET_NOT_ALLOWED),
    ("ERR_ACCESS_DENIED", Code.TARGET_NOT_ALLOWED),
    ("ERR_BLOCKED_BY", Code.TARGET_NOT_ALLOWED),
    ("Download is starting", Code.NOT_A_PAGE),
    ("has been closed", Code.BROWSER_CRASHED),
    ("Connection closed", Code.BROWSER_CRASHED),
    ("Page crashed", Code.BROWSER_CRASHED),
    ("Target crashed", Code.BROWSER_CRASHED),
    ("Unable to capture", Code.BROWSER_CRASHED),
)


class Sitting:
    def __init__(self, chromium: Chromium, guard: Guard, shot: Shot, limits: Limits) -> None:
        self._chromium, self._guard, self._shot, self._limits = chromium, guard, shot, limits
        self._trouble: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self._page: Page | None = None
        self._loaded = False
        self._dialogs = self._popups = self._navigations = 0

    def tell(self, code: Code) -> None:
        """It is over; the first reason counts."""
        if not self._trouble.done():
            self._trouble.set_result(code)

    async def take(self, until: float) -> Picture:
        """A picture by then, on the loop's clock; or `ShotFailed`, a little later at most."""
        self._chromium.sittings[self] = self.tell
        work = asyncio.ensure_future(self._work())
        try:
            either: set[asyncio.Future[Any]] = {work, self._trouble}
            left = until - asyncio.get_running_loop().time()
            await asyncio.wait(either, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
            if not self._trouble.done() and work.done():
                return work.result()
            raise ShotFailed(self._trouble.result() if self._trouble.done() else Code.NAVIGATION_TIMEOUT)
        finally:
            work.cancel()
            # Not before its context is closed: until then the page can still do things in this job's name.
            await asyncio.gather(work, return_exceptions=True)
            del self._chromium.sittings[self]

    async def _work(self) -> Picture:
        try:
            async with self._guard.admit(lambda trouble: self.tell(_TROUBLES[trouble])) as given:
                # Shielded, both: a context that is half open when the time is over must still be closed.
                opening = asyncio.ensure_future(self._open(given.port))
                try:
                    return await self._sit(await asyncio.shield(opening))
                finally:
                    await asyncio.shield(self._close(opening))
        except PlaywrightTimeout as error:
            raise ShotFailed(Code.NAVIGATION_TIMEOUT) from error
        except PlaywrightError as error:
            code = _judge(str(error))
            # Without the address: that is the user's, and may hold what is not for logs.
            log.info(
                "screenshot.failed",
                code=code.value,
                reason=_ADDRESS.sub("…", str(error).partition("\n")[0])[:200],
            )
            raise ShotFailed(code) from error

    async def _open(self, port: int) -> BrowserContext:
        return await self._chromium.browser.new_context(
            viewport={"width": self._shot.width, "height": self._shot.height},
            proxy={"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"},
            service_workers="block",
            accept_downloads=False,
        )

    async def _close(self, opening: asyncio.Future[BrowserContext]) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await (await opening).close()
        except TimeoutError:
            self._chromium.end()  # nothing less ends this page
        except PlaywrightError:
            pass  # it has ended already

    async def _sit(self, context: BrowserContext) -> Picture:
        page = self._page = await context.new_page()
        page.set_default_timeout(self._limits.seconds * 1000)
        page.on("crash", lambda _: self._on_crash())
        page.on("dialog", self._on_dialog)
        page.on("download", lambda _: self._on_download())
        page.on("framenavigated", self._on_navigation)
        context.on("page", self._on_popup)
        session = await context.new_cdp_session(page)
        await self._listen(session)
        answer = await page.goto(self._shot.url, wait_until="load")
        self._loaded = True
        if self._shot.delay:
            await asyncio.sleep(self._shot.delay)
        await self._settle(page)
        if page.url.startswith("chrome-error:"):  # it went on to where nobody answers
            raise ShotFailed(Code.CONNECTION_FAILED)
        if not page.url.startswith(("http://", "https://")):
            raise ShotFailed(Code.TARGET_NOT_ALLOWED)
        return await capture(
            page, session, self._shot, self._limits, answer.status if answer is not None else None
        )

    async def _listen(self, session: CDPSession) -> None:
        """Chromium itself refuses what no page of the web may open, and says so in its log and nowhere else."""
        session.on("Log.entryAdded", self._on_log)
        await session.send("Log.enable")

    async def _settle(self, page: Page) -> None:
        """Until what was loaded can be seen; if the page has gone elsewhere meanwhile, until that has come."""
        for hop in range(_HOPS):
            try:
                await page.wait_for_load_state("load")
                return await painted(page)
            except PlaywrightError as error:
                if "context was destroyed" not in str(error) or hop == _HOPS - 1:
                    raise
        return None

    def _on_crash(self) -> None:
        self.tell(Code.PAGE_TOO_LARGE if self._chromium.starved else Code.BROWSER_CRASHED)

    def _on_download(self) -> None:
        """It is refused in any case. A page that asks for one while it loads never ends to load."""
        if not self._loaded:
            self.tell(Code.NOT_A_PAGE)

    def _on_log(self, event: dict[str, object]) -> None:
        entry = event.get("entry")
        if isinstance(entry, dict) and str(entry.get("text", "")).startswith(
            "Not allowed to load local resource"
        ):
            self.tell(Code.TARGET_NOT_ALLOWED)

    def _on_navigation(self, frame: Frame) -> None:
        if self._page is not None and frame is self._page.main_frame:
            self._navigations += 1
            if self._navigations > self._limits.navigations:
                self.tell(Code.PAGE_MISBEHAVES)

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._dialogs += 1
        if self._dialogs > self._limits.dialogs:
            self.tell(Code.PAGE_MISBEHAVES)
            return
        with suppress(PlaywrightError):
            await dialog.dismiss()

    async def _on_popup(self, page: Page) -> None:
        if page is self._page:
            return
        self._popups += 1
        if self._popups > self._limits.popups:
            self.tell(Code.PAGE_MISBEHAVES)
        with suppress(PlaywrightError):
            await page.close()


def _judge(words: str) -> Code:
    return next((code for sign, code in _WORDS if sign in words), Code.CONNECTION_FAILED)

"""One visit to a page, to take one picture: its own browser context and its own port of the guard.

```text
work (open, load, wait, capture) ──▶ Picture          whichever comes first: work, failure or timeout
failure (blocked, too much, crash, endless dialogs) ──▶ ShotFailed
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

from holdfast.logging import Log
from systems.screenshots.browser.capture import capture, painted
from systems.screenshots.browser.chromium import Chromium
from systems.screenshots.browser.limits import Limits
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Guard, Violation
from systems.screenshots.shot import Picture, Shot

log = Log("screenshots.browser")

#: On a busy machine a page may take seconds to close. Killing the browser instead would end all other visits
#: too.
_CLOSE_SECONDS = 5.0
#: How many navigations right after the load are followed.
_HOPS = 5
_ADDRESS = re.compile(r"(?<![a-z-])[a-z-]++://\S+", re.IGNORECASE)
_CODES_OF_VIOLATIONS = {Violation.BLOCKED: Code.TARGET_NOT_ALLOWED, Violation.TOO_MUCH: Code.PAGE_TOO_LARGE}
#: Fragments of Chromium's errors, and the code of each. Any other error is CONNECTION_FAILED.
_CODES_OF_ERRORS = (
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


class Visit:
    """Takes one picture in *chromium*, through *guard*."""

    def __init__(self, chromium: Chromium, guard: Guard, shot: Shot, limits: Limits) -> None:
        self._chromium, self._guard, self._shot, self._limits = chromium, guard, shot, limits
        self._failure: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self._page: Page | None = None
        self._loaded = False
        self._dialogs = self._popups = self._navigations = 0

    def fail(self, code: Code) -> None:
        """End the visit with *code*. Only the first call counts."""
        if not self._failure.done():
            self._failure.set_result(code)

    async def take(self, until: float) -> Picture:
        """Take the picture. Raises `ShotFailed`, shortly after *until* on the loop's clock at the latest."""
        self._chromium.visits[self] = self.fail
        work = asyncio.ensure_future(self._work())
        try:
            either: set[asyncio.Future[Any]] = {work, self._failure}
            remaining = until - asyncio.get_running_loop().time()
            await asyncio.wait(either, timeout=max(remaining, 0), return_when=asyncio.FIRST_COMPLETED)
            if not self._failure.done() and work.done():
                return work.result()
            raise ShotFailed(self._failure.result() if self._failure.done() else Code.NAVIGATION_TIMEOUT)
        finally:
            work.cancel()
            # Wait until the context is closed: until then the page can still act on behalf of this job.
            await asyncio.gather(work, return_exceptions=True)
            del self._chromium.visits[self]

    async def _work(self) -> Picture:
        try:
            async with self._guard.admit(
                lambda violation: self.fail(_CODES_OF_VIOLATIONS[violation])
            ) as guard_pass:
                # Both are shielded, because a context that is half open at the timeout must still be closed.
                opening = asyncio.ensure_future(self._open(guard_pass.port))
                try:
                    return await self._visit(await asyncio.shield(opening))
                finally:
                    await asyncio.shield(self._close(opening))
        except PlaywrightTimeout as error:
            raise ShotFailed(Code.NAVIGATION_TIMEOUT) from error
        except PlaywrightError as error:
            code = _code_of(str(error))
            # Without the address, which may hold the user's secrets.
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
            self._chromium.end()  # there is no other way to end this page
        except PlaywrightError:
            pass  # the context is closed already

    async def _visit(self, context: BrowserContext) -> Picture:
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
        if page.url.startswith("chrome-error:"):  # it navigated on to a page that could not be loaded
            raise ShotFailed(Code.CONNECTION_FAILED)
        if not page.url.startswith(("http://", "https://")):
            raise ShotFailed(Code.TARGET_NOT_ALLOWED)
        return await capture(
            page, session, self._shot, self._limits, answer.status if answer is not None else None
        )

    async def _listen(self, session: CDPSession) -> None:
        """Listen to Chromium's log, the only place where it reports local resources that it has refused."""
        session.on("Log.entryAdded", self._on_log)
        await session.send("Log.enable")

    async def _settle(self, page: Page) -> None:
        """Wait until the page is painted, or the page that it has navigated to in the meantime."""
        for hop in range(_HOPS):
            try:
                await page.wait_for_load_state("load")
                return await painted(page)
            except PlaywrightError as error:
                if "context was destroyed" not in str(error) or hop == _HOPS - 1:
                    raise
        return None

    def _on_crash(self) -> None:
        self.fail(Code.PAGE_TOO_LARGE if self._chromium.killed_for_memory else Code.BROWSER_CRASHED)

    def _on_download(self) -> None:
        """Fail if the page is still loading: a page that starts a download never finishes loading.

        The download itself is always refused.
        """
        if not self._loaded:
            self.fail(Code.NOT_A_PAGE)

    def _on_log(self, event: dict[str, object]) -> None:
        entry = event.get("entry")
        if isinstance(entry, dict) and str(entry.get("text", "")).startswith(
            "Not allowed to load local resource"
        ):
            self.fail(Code.TARGET_NOT_ALLOWED)

    def _on_navigation(self, frame: Frame) -> None:
        if self._page is not None and frame is self._page.main_frame:
            self._navigations += 1
            if self._navigations > self._limits.navigations:
                self.fail(Code.PAGE_MISBEHAVES)

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._dialogs += 1
        if self._dialogs > self._limits.dialogs:
            self.fail(Code.PAGE_MISBEHAVES)
            return
        with suppress(PlaywrightError):
            await dialog.dismiss()

    async def _on_popup(self, page: Page) -> None:
        if page is self._page:
            return
        self._popups += 1
        if self._popups > self._limits.popups:
            self.fail(Code.PAGE_MISBEHAVES)
        with suppress(PlaywrightError):
            await page.close()


def _code_of(error_text: str) -> Code:
    return next(
        (code for fragment, code in _CODES_OF_ERRORS if fragment in error_text), Code.CONNECTION_FAILED
    )

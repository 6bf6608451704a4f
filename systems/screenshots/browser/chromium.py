"""One running Chromium: how it is started, who is told when it ends, how it is ended for sure."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress

from playwright.async_api import Browser, Playwright
from playwright.async_api import Error as PlaywrightError

from holdfast import UsageError
from systems.screenshots.browser.tree import end_family
from systems.screenshots.codes import Code

_LAUNCH_MS = 30_000
_CLOSE_SECONDS = 3.0
#: So long after the end of its process a page is seen to crash.
_CRASH_SECONDS = 2.0
#: The shell first: it has no windows, and takes a third of the time for a picture.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    # Names are resolved by the guard alone; Chromium itself finds none, whatever would ask it to.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--dns-prefetch-disable",
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # its name in the headless shell
    "--deny-permission-prompts",
    "--disable-notifications",
    "--disable-dev-shm-usage",  # in containers /dev/shm is small, and a full one crashes pages
    "--disable-gpu",
    "--block-new-web-contents",  # no page opens a window: the shell has no blocker of its own, as the whole browser has
    "--mute-audio",
    "--disk-cache-size=1",
)


def find_program(environment: Mapping[str, str]) -> str:
    """SCREENSHOTS_CHROMIUM, or the first that is installed."""
    named = environment.get("SCREENSHOTS_CHROMIUM", "").strip()
    for name in (named,) if named else _PROGRAMS:
        if found := shutil.which(name):
            return found
    raise UsageError(
        "no Chromium is found; install it (apt-get install chromium-headless-shell) or name it by SCREENSHOTS_CHROMIUM"
    )


class Chromium:
    """*ended* are told once when it has ended, of itself or not."""

    def __init__(self, browser: Browser, pid: int) -> None:
        self.browser, self.pid = browser, pid
        self._handle: int | None = os.pidfd_open(pid)
        self.jobs = 0  #: begun so far
        self.sittings: dict[
            object, Callable[[Code], None]
        ] = {}  #: who sits now, and how to tell that it is over
        self._starved_until = 0.0
        browser.on("disconnected", lambda _: self._tell(Code.BROWSER_CRASHED))

    @classmethod
    async def launch(cls, playwright: Playwright, program: str, *, nowhere: int) -> Chromium:
        """*nowhere* is a port of the guard that leads nowhere: for what Chromium asks on its own account."""
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=list(ARGUMENTS),
            ignore_default_args=["--disable-popup-blocking"],
            # Chromium's sandbox does not work for root, and it refuses to start. Run as anybody else it is on.
            chromium_sandbox=os.geteuid() != 0,
            proxy={"server": f"http://127.0.0.1:{nowhere}", "bypass": "<-loopback>"},
            timeout=_LAUNCH_MS,
        )
        session = await browser.new_browser_cdp_session()
        told = await session.send("SystemInfo.getProcessInfo")
        [pid] = [int(process["id"]) for process in told["processInfo"] if process["type"] == "browser"]
        await session.detach()
        return cls(browser, pid)

    @property
    def running(self) -> bool:
        return self.browser.is_connected()

    def starve(self, pid: int) -> None:
        """End a process of a page for the memory it holds."""
        self._starved_until = asyncio.get_running_loop().time() + _CRASH_SECONDS
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    @property
    def starved(self) -> bool:
        """Whether a page that crashes now does so for its memory: Chromium does not tell whose process it was."""
        return asyncio.get_running_loop().time() < self._starved_until

    def _tell(self, code: Code) -> None:
        for tell in list(self.sittings.values()):
            tell(code)

    def end(self) -> None:
        """Now, for all who sit in it."""
        if self._handle is None:
            return
        try:
            signal.pidfd_send_signal(self._handle, 0)
        except ProcessLookupError:
            return  # it has ended, and its number may be somebody else's by now
        end_family(self.pid)

    async def close(self) -> None:
        """In order if it can; for sure in any case."""
        with suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.browser.close()
        self.end()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

"""One Chromium process: starts it, reports its end to running visits, and ends it reliably."""

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
from systems.screenshots.browser.processes import end_family
from systems.screenshots.codes import Code

_LAUNCH_MS = 30_000
_CLOSE_SECONDS = 3.0
#: A page's crash is reported up to this long after its process has ended.
_CRASH_SECONDS = 2.0
#: The shell comes first, because it has no windows and takes a third of the time for a picture.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    # Only the guard resolves names; Chromium's own resolver is disabled.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--dns-prefetch-disable",
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # its name in the headless shell
    "--deny-permission-prompts",
    "--disable-notifications",
    "--disable-dev-shm-usage",  # in containers /dev/shm is small, and a full one crashes pages
    "--disable-gpu",
    "--block-new-web-contents",  # no page opens a window; the shell lacks the full browser's popup blocker
    "--mute-audio",
    "--disk-cache-size=1",
)


def find_program(environment: Mapping[str, str]) -> str:
    """Return the path of SCREENSHOTS_CHROMIUM, or of the first installed Chromium. Raises `UsageError`."""
    named = environment.get("SCREENSHOTS_CHROMIUM", "").strip()
    for name in (named,) if named else _PROGRAMS:
        if found := shutil.which(name):
            return found
    raise UsageError(
        "no Chromium is found; install it (apt-get install chromium-headless-shell) or name it by SCREENSHOTS_CHROMIUM"
    )


class Chromium:
    """A running Chromium, and the visits in it, which fail when it ends."""

    def __init__(self, browser: Browser, pid: int) -> None:
        self.browser, self.pid = browser, pid
        self._handle: int | None = os.pidfd_open(pid)
        self.jobs = 0  #: started so far
        self.visits: dict[object, Callable[[Code], None]] = {}  #: the running visits, and how to fail each
        self._memory_kill_until = 0.0
        browser.on("disconnected", lambda _: self._fail_visits(Code.BROWSER_CRASHED))

    @classmethod
    async def launch(cls, playwright: Playwright, program: str, *, blocked_port: int) -> Chromium:
        """Start Chromium.

        Its requests outside of any visit go to *blocked_port*, where the guard allows nothing.
        """
        browser = await playwright.chromium.launch(
            executable_path=program,
            args=list(ARGUMENTS),
            ignore_default_args=["--disable-popup-blocking"],
            # Chromium refuses to start as root with its sandbox. For any other user the sandbox is on.
            chromium_sandbox=os.geteuid() != 0,
            proxy={"server": f"http://127.0.0.1:{blocked_port}", "bypass": "<-loopback>"},
            timeout=_LAUNCH_MS,
        )
        session = await browser.new_browser_cdp_session()
        info = await session.send("SystemInfo.getProcessInfo")
        [pid] = [int(process["id"]) for process in info["processInfo"] if process["type"] == "browser"]
        await session.detach()
        return cls(browser, pid)

    @property
    def running(self) -> bool:
        return self.browser.is_connected()

    def kill_for_memory(self, pid: int) -> None:
        """Kill the process of a page that uses too much memory."""
        self._memory_kill_until = asyncio.get_running_loop().time() + _CRASH_SECONDS
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    @property
    def killed_for_memory(self) -> bool:
        """Return whether a page was killed for its memory just now.

        A crash reported now is attributed to that, because Chromium does not say whose process has ended.
        """
        return asyncio.get_running_loop().time() < self._memory_kill_until

    def _fail_visits(self, code: Code) -> None:
        for fail in list(self.visits.values()):
            fail(code)

    def end(self) -> None:
        """Kill Chromium and its processes now. All its visits fail."""
        if self._handle is None:
            return
        try:
            signal.pidfd_send_signal(self._handle, 0)
        except ProcessLookupError:
            return  # it has ended, and its process id may have been reused
        end_family(self.pid)

    async def close(self) -> None:
        """End Chromium: gracefully if it responds, by SIGKILL otherwise."""
        with suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.browser.close()
        self.end()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

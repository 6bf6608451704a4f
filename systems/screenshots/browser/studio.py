"""Runs Chromium: starts it, replaces it when it is old or lost, and limits its memory."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack, suppress

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Playwright, async_playwright

from holdfast.logging import Log
from holdfast.outbound import HostUnreachable, Resolve, TargetNotAllowed, look_up
from systems.screenshots.browser.chromium import Chromium
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.processes import family, own_bytes, resident_bytes
from systems.screenshots.browser.visit import Visit
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Dial, Guard, Rules
from systems.screenshots.guard.proxy import dial
from systems.screenshots.shot import Picture, Shot

log = Log("screenshots.browser")

_WATCH_SECONDS = 0.25
_RESCAN_TURNS = 3


class Studio:
    """Takes pictures in one Chromium at a time.

    Use it as `async with Studio(program, rules, limits) as studio: await studio.shoot(shot)`. It does not
    limit how many pictures are taken at a time; the caller does.
    """

    def __init__(
        self, program: str, rules: Rules, limits: Limits, *, resolve: Resolve = look_up, dial: Dial = dial
    ) -> None:
        self._program, self._limits = program, limits
        self._guard = Guard(rules, bounds=limits.network, resolve=resolve, dial=dial)
        self._closed_guard = Guard(Rules(ports=frozenset()))
        self._stack = AsyncExitStack()
        self._playwright: Playwright | None = None
        self._blocked_port = 0
        self._current: Chromium | None = None
        self._all: set[Chromium] = set()
        self._launching: asyncio.Task[Chromium] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Studio:
        try:
            self._playwright = await self._stack.enter_async_context(async_playwright())
            closed_pass = await self._stack.enter_async_context(self._closed_guard.admit(lambda _: None))
            self._blocked_port = closed_pass.port
            await self._running_chromium()
            watcher = asyncio.create_task(self._watch())
            self._stack.callback(watcher.cancel)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._launching is not None:
            await asyncio.gather(self._launching, return_exceptions=True)
        for chromium in list(self._all):
            await chromium.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        with suppress(PlaywrightError):  # its driver may be gone
            await self._stack.aclose()

    @property
    def pids(self) -> list[int]:
        """The process id of each running Chromium."""
        return sorted(chromium.pid for chromium in self._all if chromium.running)

    async def shoot(self, shot: Shot) -> Picture:
        """Take a picture within `limits.seconds`, and a few seconds more to clean up. Raises `ShotFailed`."""
        until = asyncio.get_running_loop().time() + self._limits.seconds
        try:
            # A slow name server counts against the page's time.
            async with asyncio.timeout_at(until):
                await self._guard.check(shot.url)
                chromium = await self._running_chromium()
        except TargetNotAllowed as error:
            raise ShotFailed(Code.TARGET_NOT_ALLOWED) from error
        except HostUnreachable as error:
            raise ShotFailed(Code.CONNECTION_FAILED) from error
        except TimeoutError as error:
            raise ShotFailed(Code.NAVIGATION_TIMEOUT) from error
        chromium.jobs += 1
        if chromium.jobs >= self._limits.jobs:
            self._current = None  # the next job gets a new Chromium; this one ends with its last visit
        try:
            return await Visit(chromium, self._guard, shot, self._limits).take(until)
        finally:
            if chromium is not self._current and not chromium.visits:
                self._retire(chromium)

    async def _running_chromium(self) -> Chromium:
        if self._current is not None and self._current.running:
            return self._current
        if self._launching is None:
            self._launching = asyncio.create_task(self._launch())
        # Shielded, because this caller may be cancelled while others wait for the same launch.
        return await asyncio.shield(self._launching)

    async def _launch(self) -> Chromium:
        assert self._playwright is not None
        try:
            if self._current is not None:
                log.warning("browser.lost", pid=self._current.pid, jobs=self._current.jobs)
                self._retire(self._current)
            self._current = await Chromium.launch(
                self._playwright, self._program, blocked_port=self._blocked_port
            )
        except PlaywrightError as error:
            log.warning("browser.start_failed", reason=str(error).partition("\n")[0][:200])
            raise ShotFailed(Code.BROWSER_CRASHED) from error
        finally:
            self._launching = None
        self._all.add(self._current)
        return self._current

    def _retire(self, chromium: Chromium) -> None:
        if chromium is self._current:
            self._current = None
        if chromium in self._all:
            self._all.discard(chromium)
            task = asyncio.create_task(chromium.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _watch(self) -> None:
        """Kill pages that exceed the memory limit of a page, and Chromium when it exceeds its own."""
        known: dict[Chromium, list[int]] = {}
        for turn in itertools.count():
            await asyncio.sleep(_WATCH_SECONDS)
            # Listing all processes of the machine costs more than reading the memory of a few.
            if turn % _RESCAN_TURNS == 0:
                known = {each: family(each.pid) for each in self._all if each.running and each.visits}
            for chromium, pids in known.items():
                if chromium.running:
                    self._check_memory(chromium, pids)

    def _check_memory(self, chromium: Chromium, pids: list[int]) -> None:
        resident = {pid: resident_bytes(pid) for pid in pids}
        # The quick figure counts shared pages once for each process, so it can only be too high.
        if (
            max(resident.values()) <= self._limits.page_bytes
            and sum(resident.values()) <= self._limits.memory_bytes
        ):
            return
        exact = {pid: own_bytes(pid) for pid in pids}
        largest = max(
            (pid for pid in pids if pid != chromium.pid), key=exact.__getitem__, default=chromium.pid
        )
        if exact[largest] > self._limits.page_bytes:
            log.warning("page.killed", reason="memory", megabytes=exact[largest] >> 20)
            chromium.kill_for_memory(largest)
        elif sum(exact.values()) > self._limits.memory_bytes:
            log.warning("browser.killed", reason="memory", megabytes=sum(exact.values()) >> 20)
            chromium.end()

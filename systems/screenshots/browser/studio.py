"""Where pictures are taken: a Chromium that is replaced when it is old or lost, and watched while it works."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack, suppress

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Playwright, async_playwright

from holdfast.logs import Log
from holdfast.outbound import HostUnreachable, Resolve, TargetNotAllowed, look_up
from systems.screenshots.browser.chromium import Chromium
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.sitting import Sitting
from systems.screenshots.browser.tree import family, own_bytes, resident_bytes
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Dial, Guard, Rules
from systems.screenshots.guard.proxy import dial
from systems.screenshots.shot import Picture, Shot

log = Log("screenshots.browser")

_WATCH_SECONDS = 0.25
_FAMILY_TURNS = 3


class Studio:
    """`async with Studio(program, rules, limits) as studio: await studio.shoot(shot)`.

    It runs as many sittings as it is asked to: who asks bounds them.
    """

    def __init__(
        self, program: str, rules: Rules, limits: Limits, *, resolve: Resolve = look_up, dial: Dial = dial
    ) -> None:
        self._program, self._limits = program, limits
        self._guard = Guard(rules, bounds=limits.network, resolve=resolve, dial=dial)
        self._nobody = Guard(Rules(ports=frozenset()))
        self._stack = AsyncExitStack()
        self._playwright: Playwright | None = None
        self._nowhere = 0
        self._current: Chromium | None = None
        self._all: set[Chromium] = set()
        self._launching: asyncio.Task[Chromium] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Studio:
        try:
            self._playwright = await self._stack.enter_async_context(async_playwright())
            nowhere = await self._stack.enter_async_context(self._nobody.admit(lambda _: None))
            self._nowhere = nowhere.port
            await self._have()
            watching = asyncio.create_task(self._watch())
            self._stack.callback(watching.cancel)
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
        """Of each Chromium that runs."""
        return sorted(chromium.pid for chromium in self._all if chromium.running)

    async def shoot(self, shot: Shot) -> Picture:
        """`ShotFailed` tells why there is no picture; within the limit of seconds, and a few more to tidy up."""
        until = asyncio.get_running_loop().time() + self._limits.seconds
        try:
            # A slow name server takes its time from the page, not from us.
            async with asyncio.timeout_at(until):
                await self._guard.check(shot.url)
                chromium = await self._have()
        except TargetNotAllowed as error:
            raise ShotFailed(Code.TARGET_NOT_ALLOWED) from error
        except HostUnreachable as error:
            raise ShotFailed(Code.CONNECTION_FAILED) from error
        except TimeoutError as error:
            raise ShotFailed(Code.NAVIGATION_TIMEOUT) from error
        chromium.jobs += 1
        if chromium.jobs >= self._limits.jobs:
            self._current = None  # the next job gets a new one; this one ends with its last sitting
        try:
            return await Sitting(chromium, self._guard, shot, self._limits).take(until)
        finally:
            if chromium is not self._current and not chromium.sittings:
                self._retire(chromium)

    async def _have(self) -> Chromium:
        if self._current is not None and self._current.running:
            return self._current
        if self._launching is None:
            self._launching = asyncio.create_task(self._launch())
        # Shielded: who asked may give up meanwhile, and the next one needs it too.
        return await asyncio.shield(self._launching)

    async def _launch(self) -> Chromium:
        assert self._playwright is not None
        try:
            if self._current is not None:
                log.warning("browser.lost", pid=self._current.pid, jobs=self._current.jobs)
                self._retire(self._current)
            self._current = await Chromium.launch(self._playwright, self._program, nowhere=self._nowhere)
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
        """Ends a page that holds more memory than a page may; and Chromium, if that is not enough."""
        known: dict[Chromium, list[int]] = {}
        for turn in itertools.count():
            await asyncio.sleep(_WATCH_SECONDS)
            if (
                turn % _FAMILY_TURNS == 0
            ):  # to look at every process of the machine costs more than to weigh a few
                known = {each: family(each.pid) for each in self._all if each.running and each.sittings}
            for chromium, pids in known.items():
                if chromium.running:
                    self._weigh(chromium, pids)

    def _weigh(self, chromium: Chromium, pids: list[int]) -> None:
        held = {pid: resident_bytes(pid) for pid in pids}
        # The quick figure counts shared pages for each that shares them: it can only be too high.
        if max(held.values()) <= self._limits.page_bytes and sum(held.values()) <= self._limits.memory_bytes:
            return
        exact = {pid: own_bytes(pid) for pid in pids}
        largest = max(
            (pid for pid in pids if pid != chromium.pid), key=exact.__getitem__, default=chromium.pid
        )
        if exact[largest] > self._limits.page_bytes:
            log.warning("page.killed", reason="memory", megabytes=exact[largest] >> 20)
            chromium.starve(largest)
        elif sum(exact.values()) > self._limits.memory_bytes:
            log.warning("browser.killed", reason="memory", megabytes=sum(exact.values()) >> 20)
            chromium.end()

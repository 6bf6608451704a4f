"""A store as one process sees it through a bad network: slow, away, answering too late, twice, or not at all.

What is written is written by the real store, in one step. The faults are in the ways there and back, so that a call may fail
although it was carried out: whoever sent it cannot know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from holdfast.engine.ports import HeartbeatConnection, Store
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.jobs.job import Session
from tests.simulation.loop import Actor, SimLoop, SimThreads

#: Calls that may arrive twice, the second time much later: each is repeatable (rule 3 of docs/explanation/reliability.md).
REPEATABLE = frozenset(
    {"settle", "enqueue", "reclaim", "promote", "time_out", "close_session", "record_step"}
)
#: Calls that move a job: checked by the auditor.
WRITES = frozenset(
    {"enqueue", "claim", "settle", "reclaim", "time_out", "promote", "retry", "cancel", "discard"}
)
#: Calls that may bring work.
RINGING = frozenset({"settle", "enqueue", "reclaim", "retry", "resume", "swap_breaker"})
#: Calls whose fate matters to a story.
TOLD = frozenset({"enqueue", "claim", "settle", "reclaim", "record_step", "retry", "cancel", "discard"})
#: Passed through as they are.
PLAIN = frozenset({"hooks", "share"})
PARTS = frozenset({"queries", "lanes", "outbox", "dispatch"})


@dataclass
class Weather:
    """How bad it is now: chances of each call, and seconds."""

    refused: float = 0.0  #: it never arrives
    lost: float = 0.0  #: it is carried out, and the answer does not come back
    doubled: float = 0.0  #: it arrives once more, a while later
    delayed: float = 0.0  #: it takes a while, there or back
    slowest: float = 0.1
    away: bool = False  #: nothing arrives
    deaf: float = 0.0  #: hints of work are lost


class Audit(Protocol):
    """Whoever checks what the store does."""

    async def before(self, name: str, args: tuple[Any, ...]) -> Any: ...
    async def after(self, name: str, args: tuple[Any, ...], answer: Any, expected: Any) -> None: ...
    def note(self, what: str) -> None: ...
    def fail(self, error: AssertionError) -> None: ...


class Door:
    """*ghost*: the process behind it is dead, and what it still sends goes nowhere."""

    def __init__(
        self,
        store: Store,
        loop: SimLoop,
        weather: Weather,
        chance: Random,
        audit: Audit,
        counts: Counter[str],
        bells: list[Door],
    ) -> None:
        self.store, self._loop, self._weather, self._chance = store, loop, weather, chance
        self._audit, self._counts, self._bells = audit, counts, bells
        self._notifier = asyncio.Event()
        self.ghost = False
        bells.append(self)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.store, name)
        found = Part(self, real) if name in PARTS else self.through(name, real)
        setattr(self, name, found)  # found at once the next time
        return found

    def through(self, name: str, real: Any) -> Any:
        """The method *real* behind this network."""
        if name in PLAIN:
            return real

        async def call(*args: Any, **options: Any) -> Any:
            return await self._call(name, lambda: real(*args, **options), args)

        return call

    def _happens(self, chance: float, what: str) -> bool:
        if not chance or self._chance.random() >= chance:
            return False
        self._counts[what] += 1
        return True

    async def _call(self, name: str, send: Callable[[], Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        weather = self._weather
        if self._happens(weather.delayed, "slow"):
            await asyncio.sleep(self._chance.random() * weather.slowest)
        self._go(name)
        answer = await self._carry_out(name, send, args)
        if name in REPEATABLE and self._happens(weather.doubled, "sent twice"):
            if name in TOLD:
                self._audit.note(f"{name} will arrive once more")
            delay = self._chance.random() ** 3 * 20
            _ = self._loop.start(Actor("network"), self._again(delay, name, send, args))
        if self._happens(weather.delayed, "answered late"):
            await asyncio.sleep(self._chance.random() * weather.slowest)
        if self.ghost or self._happens(weather.lost, f"answer lost: {name}"):
            if name in TOLD and answer:
                self._audit.note(f"{name} was carried out, and its answer is lost")
            raise StoreUnavailable("the answer was lost")
        return answer

    def _go(self, name: str) -> None:
        if self.ghost:
            raise StoreUnavailable("the process is dead")
        if self._weather.away or self._happens(self._weather.refused, f"refused: {name}"):
            raise StoreUnavailable("the store is away")

    async def _carry_out(self, name: str, send: Callable[[], Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        try:
            if name in WRITES:
                expected = await self._audit.before(name, args)
                answer = await send()
                await self._audit.after(name, args, answer, expected)
            else:
                answer = await send()
        except AssertionError as error:
            self._audit.fail(error)  # told here: whoever called may take it for any failure
            raise
        for door in self._bells if name in RINGING else ():
            if not self._happens(self._weather.deaf, "hint lost"):
                door._notifier.set()
        return answer

    async def _again(
        self, delay: float, name: str, send: Callable[[], Awaitable[Any]], args: tuple[Any, ...]
    ) -> None:
        await asyncio.sleep(delay)
        if not self.ghost:
            with suppress(LeaseLost):
                await self._carry_out(name, send, args)

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Any, timeout: float) -> None:
        """A hint, and not even a reliable one."""
        self._notifier.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._notifier.wait()
        except TimeoutError:
            return

    def heartbeat(self) -> HeartbeatConnection:
        return DoorHeart(self, self.store.heartbeat(), SimThreads(self._loop), self._weather, self._chance)


class Part:
    """A part of the store, such as `store.lanes`, behind the same network."""

    def __init__(self, door: Door, real: object) -> None:
        self._door, self._real = door, real

    def __getattr__(self, name: str) -> Any:
        call = self._door.through(name, getattr(self._real, name))
        setattr(self, name, call)
        return call


class DoorHeart:
    """Beats go through the same weather, from a thread of their own."""

    def __init__(
        self,
        door: Door,
        heartbeat: HeartbeatConnection,
        threads: SimThreads,
        weather: Weather,
        chance: Random,
    ) -> None:
        self._door, self._heartbeat, self._threads = door, heartbeat, threads
        self._weather, self._chance = weather, chance

    def beat(self, session: Session) -> bool:
        door, weather = self._door, self._weather
        if door._happens(weather.delayed, "slow beat"):
            self._threads.sleep(self._chance.random() * weather.slowest)
        door._go("beat")
        lives = self._heartbeat.beat(session)
        if door._happens(weather.lost, "answer lost: beat"):
            raise StoreUnavailable("the answer was lost")
        return lives

    def close(self) -> None:
        self._heartbeat.close()

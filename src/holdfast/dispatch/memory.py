"""A broker inside one process, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import count
from typing import NamedTuple

from holdfast.engine.dispatch import DispatchEntry, DispatchHint, Sizes
from holdfast.jobs.job import JobId, Lane
from holdfast.jobs.machine import Clock


class StoredEntry(NamedTuple):
    """An offered job, when it is due and its position."""

    entry: DispatchEntry
    due: float
    position: int | None  #: its number in the order of its lane, or None while it is not due


class MemoryDispatch:
    """Implements `Dispatch` with a dictionary."""

    delays = True
    repeats = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[JobId, StoredEntry] = {}
        self._positions = count(1)
        self._wakeup = asyncio.Event()
        self._built = False

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        now = self._clock.monotonic()
        for entry in entries:
            before = self._stored.get(entry.job_id)
            if before is not None and before.entry.generation > entry.generation:
                continue
            position = None
            if not entry.delay:
                same = before is not None and before.entry[:4] == entry[:4]
                position = before.position if before is not None and same else None
                position = position or next(self._positions)
            self._wakeup.set()
            self._stored[entry.job_id] = StoredEntry(entry, now + entry.delay.total_seconds(), position)

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        return {job_id for job_id in ids if self._stored.pop(job_id, None) is not None}

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        self._promote()
        taken: list[DispatchHint] = []
        for lane in lanes:
            ready = [
                stored for stored in self._stored.values() if stored.entry.lane == lane and stored.position
            ]
            ready.sort(key=lambda stored: (-stored.entry.priority, stored.position))
            for stored in ready[: most - len(taken)]:
                del self._stored[stored.entry.job_id]
                taken.append(DispatchHint(stored.entry.job_id, stored.entry.generation))
        return taken

    def _promote(self) -> None:
        now = self._clock.monotonic()
        due = [stored for stored in self._stored.values() if stored.position is None and stored.due <= now]
        for stored in sorted(due, key=lambda stored: stored.due):
            self._stored[stored.entry.job_id] = stored._replace(position=next(self._positions))

    async def took(self, hints: Sequence[DispatchHint]) -> None: ...
    async def put_back(self, hints: Sequence[DispatchHint]) -> None: ...

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        self._promote()
        if any(stored.position and stored.entry.lane in lanes for stored in self._stored.values()):
            return
        self._wakeup.clear()
        dues = [stored.due for stored in self._stored.values() if stored.position is None]
        ahead = min(dues, default=self._clock.monotonic() + timeout) - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(min(ahead, timeout), 0)):
                await self._wakeup.wait()
        except TimeoutError:
            return

    async def sizes(self, lanes: Collection[Lane]) -> Sizes:
        ready = dict.fromkeys(lanes, 0)
        for stored in self._stored.values():
            if stored.position is not None and stored.entry.lane in ready:
                ready[stored.entry.lane] += 1
        later = sum(stored.position is None for stored in self._stored.values())
        return Sizes(ready, later, self._built)

    async def built(self) -> None:
        self._built = True

    async def forget(self, lanes: Collection[Lane]) -> None:
        self._built = False
        self._stored = {
            job_id: stored
            for job_id, stored in self._stored.items()
            if stored.position is not None and stored.entry.lane not in lanes
        }

    async def ping(self) -> None: ...
    async def close(self) -> None: ...

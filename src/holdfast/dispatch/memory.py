"""Dispatch inside one process, for tests: what a broker does, in two dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import count
from typing import NamedTuple

from holdfast.domain.job import JobId, Lane
from holdfast.engine.dispatch import DispatchEntry, DispatchHint, Sizes
from holdfast.engine.ports import Clock


class StoredEntry(NamedTuple):
    entry: DispatchEntry
    due: float
    place: int | None  #: None: it is not in line yet


class MemoryDispatch:
    delays = True
    repeats = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[JobId, StoredEntry] = {}
        self._places = count(1)
        self._bell = asyncio.Event()
        self._built = False

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        now = self._clock.monotonic()
        for entry in entries:
            before = self._kept.get(entry.job_id)
            if before is not None and before.entry.generation > entry.generation:
                continue
            place = None
            if not entry.delay:
                same = before is not None and before.entry[:4] == entry[:4]
                place = before.place if before is not None and same else None
                place = place or next(self._places)
            self._bell.set()
            self._kept[entry.job_id] = StoredEntry(entry, now + entry.delay.total_seconds(), place)

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        return {job_id for job_id in ids if self._kept.pop(job_id, None) is not None}

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        self._promote()
        taken: list[DispatchHint] = []
        for lane in lanes:
            line = [kept for kept in self._kept.values() if kept.entry.lane == lane and kept.place]
            line.sort(key=lambda kept: (-kept.entry.priority, kept.place))
            for kept in line[: most - len(taken)]:
                del self._kept[kept.entry.job_id]
                taken.append(DispatchHint(kept.entry.job_id, kept.entry.generation))
        return taken

    def _promote(self) -> None:
        now = self._clock.monotonic()
        due = [kept for kept in self._kept.values() if kept.place is None and kept.due <= now]
        for kept in sorted(due, key=lambda kept: kept.due):
            self._kept[kept.entry.job_id] = kept._replace(place=next(self._places))

    async def took(self, hints: Sequence[DispatchHint]) -> None: ...
    async def put_back(self, hints: Sequence[DispatchHint]) -> None: ...

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        self._promote()
        if any(kept.place and kept.entry.lane in lanes for kept in self._kept.values()):
            return
        self._bell.clear()
        dues = [kept.due for kept in self._kept.values() if kept.place is None]
        ahead = min(dues, default=self._clock.monotonic() + timeout) - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(min(ahead, timeout), 0)):
                await self._bell.wait()
        except TimeoutError:
            return

    async def sizes(self, lanes: Collection[Lane]) -> Sizes:
        ready = dict.fromkeys(lanes, 0)
        for kept in self._kept.values():
            if kept.place is not None and kept.entry.lane in ready:
                ready[kept.entry.lane] += 1
        later = sum(kept.place is None for kept in self._kept.values())
        return Sizes(ready, later, self._built)

    async def built(self) -> None:
        self._built = True

    async def forget(self, lanes: Collection[Lane]) -> None:
        self._built = False
        self._kept = {
            job_id: kept
            for job_id, kept in self._kept.items()
            if kept.place is not None and kept.entry.lane not in lanes
        }

    async def ping(self) -> None: ...
    async def close(self) -> None: ...

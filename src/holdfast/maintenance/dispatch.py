"""The maintenance task that offers waiting jobs to a broker. It follows the events from a bookmark.

```text
  bookmark ──▶ events after it ──▶ offer jobs that wait now, cancel the others ──▶ move the bookmark
  sizes ─────▶ fewer hints than jobs, or an emptied broker ──▶ offer all waiting jobs, page by page
  due soon ──▶ offer them when they are due, if the broker has no delayed delivery
```

Any number of processes may run it. Only one at a time does the work, because some brokers cannot recognize
repeats. A process that dies leaves the bookmark where it was, and the next one offers the same jobs again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from datetime import timedelta

from holdfast.engine.dispatch import DispatchEntry
from holdfast.engine.dispatcher import Dispatcher
from holdfast.engine.engine import Engine
from holdfast.engine.leader import Leader
from holdfast.engine.tables import bookmarks
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind
from holdfast.logging import Log

log = Log("holdfast.dispatch")

BOOKMARK = "dispatch"
LEADER, LEAD_SECONDS = "dispatch.leading", 3.0
DISPATCH_EVERY = 0.2
PAGE = 1000
#: How many pages one run reads, so that the other maintenance tasks of this process get their turn.
STEPS = 10
#: Seconds between two comparisons of the sizes, and the least pause in durations of a comparison.
COMPARE_EVERY, COMPARE_PAUSE = 2.0, 20
#: How far ahead due jobs are read for a broker without delayed delivery.
AHEAD = timedelta(seconds=2)

#: The events after which a job may have begun or stopped to wait.
RELEVANT = frozenset(
    kind.name
    for kind in (
        Kind.queued, Kind.retry, Kind.released, Kind.snoozed, Kind.reclaimed, Kind.manual_retry, Kind.redriven,
        Kind.processing, Kind.cancelled, Kind.timed_out,
    )
)  # fmt: skip


class DispatchFeed:
    """Keeps the hints of a broker in step with the waiting jobs of the store."""

    def __init__(self, engine: Engine, broker: Dispatcher) -> None:
        self._engine, self._store, self._broker, self._clock = engine, engine.store, broker, engine.clock
        self._leader = Leader(self._store, self._clock, LEADER, LEAD_SECONDS)
        self._compare_at = -math.inf
        self._was_too_few = False
        self._page: JobId | None = None  #: the last job that the current rebuild has offered
        self._rebuilding = False
        self._soon: list[tuple[float, DispatchEntry]] = []
        self._remembered: set[tuple[JobId, int]] = set()  #: the jobs and generations in `_soon`

    async def run(self) -> None:
        """Bring the broker up to date, if this process leads and the broker answers."""
        if not await self._leader.is_ours():
            return
        await self._broker.ask(lambda dispatch: dispatch.ping())
        if not self._broker.is_available:
            return
        for _ in range(STEPS):
            if not await self._follow():
                break
        if self._clock.monotonic() >= self._compare_at:
            await self._compare()
        if self._rebuilding:
            await self._rebuild()
        if not self._broker.delays:
            await self._offer_due()

    # -- the events -------------------------------------------------------------------------------------------------
    async def _follow(self) -> bool:
        """Pass on one page of events. Return whether there may be more."""
        before = await bookmarks.get(self._store, BOOKMARK)
        if before is None:
            await bookmarks.move(
                self._store, BOOKMARK, before=None, to=await self._store.queries.newest_event()
            )
            self._start_rebuild("new broker")
            return False
        events = await self._store.queries.events(after=before, limit=PAGE)
        if not events:
            return False
        ids = list(dict.fromkeys(event.job_id for event in events if event.kind in RELEVANT))
        waiting = await self._broker.refresh(ids) if ids else []
        if waiting is None:
            return False
        self._remember_soon(waiting)
        moved = await bookmarks.move(self._store, BOOKMARK, before=before, to=events[-1].id)
        return moved and len(events) == PAGE

    # -- the sizes --------------------------------------------------------------------------------------------------
    async def _compare(self) -> None:
        """Start a rebuild if the broker has less than half of the waiting jobs in two comparisons in a row.

        A few hints may always be in transit, so a smaller difference means nothing.
        """
        began = self._clock.monotonic()
        depths = await self._store.dispatch.count_waiting()
        dispatched = {lane: depth for lane, depth in depths.items() if self._broker.hands_out(lane)}
        sizes = await self._broker.ask(lambda dispatch: dispatch.sizes(list(dispatched)))
        now = self._clock.monotonic()
        self._compare_at = now + max(COMPARE_EVERY, COMPARE_PAUSE * (now - began))
        if sizes is None:
            return
        later = sum(depth.later for depth in dispatched.values()) if self._broker.delays else 0
        too_few = sizes.later * 2 < later or any(
            sizes.ready[lane] * 2 < depth.due for lane, depth in dispatched.items()
        )
        if not sizes.built or (too_few and self._was_too_few):
            self._start_rebuild("fewer hints than jobs" if sizes.built else "emptied broker")
        self._was_too_few = too_few

    def _start_rebuild(self, reason: str) -> None:
        if not self._rebuilding:
            self._rebuilding, self._page = True, None
            log.info("broker.rebuild_started", reason=reason)

    async def _rebuild(self) -> None:
        """Offer the next pages of waiting jobs, and end the rebuild after the last one."""
        for _ in range(STEPS):
            page = await self._store.dispatch.all_waiting(after=self._page, limit=PAGE)
            entries = [entry for entry in page if self._broker.hands_out(entry.lane)]
            self._remember_soon(entries)
            await self._broker.ask(lambda dispatch: dispatch.offer(entries))  # noqa: B023 - awaited here
            if not self._broker.is_available:
                return
            if len(page) < PAGE:
                self._rebuilding = self._was_too_few = False
                await self._broker.ask(lambda dispatch: dispatch.built())
                log.info("broker.rebuilt")
                return
            self._page = page[-1].job_id

    # -- a broker without delayed delivery ----------------------------------------------------------------------------
    def _remember_soon(self, waiting: Sequence[DispatchEntry]) -> None:
        """Remember the jobs that are due soon: at the next run the store may have promoted them already."""
        if self._broker.delays:
            return
        now = self._clock.monotonic()
        for entry in waiting:
            key = entry.job_id, entry.generation
            if timedelta() < entry.delay <= AHEAD and key not in self._remembered:
                self._remembered.add(key)
                heapq.heappush(self._soon, (now + entry.delay.total_seconds(), entry))

    async def _offer_due(self) -> None:
        soon = await self._store.dispatch.due_soon(AHEAD, PAGE)
        self._remember_soon([entry for entry in soon if self._broker.hands_out(entry.lane)])
        now = self._clock.monotonic()
        due: list[DispatchEntry] = []
        while self._soon and self._soon[0][0] <= now:
            _, entry = heapq.heappop(self._soon)
            self._remembered.discard((entry.job_id, entry.generation))
            due.append(entry._replace(delay=timedelta()))
        if due:
            await self._broker.ask(lambda dispatch: dispatch.offer(due))

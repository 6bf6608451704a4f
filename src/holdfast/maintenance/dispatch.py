"""The duty that keeps a broker told of what waits, however a job came to wait: it follows the events from a bookmark.

```text
  bookmark ──▶ events behind it ──▶ offer what waits now, take back what does not ──▶ bookmark moves
  sizes ─────▶ fewer hints than jobs, or it was emptied ──▶ offer everything that waits, page by page
  due soon ──▶ offered when it is due, to a broker that keeps no time
```

Any number of processes may do it; one at a time does, which saves work and spares a broker that cannot tell repeats apart.
A process that dies leaves the bookmark where it was: the next one offers the same again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from datetime import timedelta

from holdfast.domain.job import JobId
from holdfast.domain.moves import Kind
from holdfast.engine.dispatch import DispatchEntry
from holdfast.engine.dispatcher import Dispatcher
from holdfast.engine.engine import Engine
from holdfast.engine.leader import Leader
from holdfast.logs import Log

log = Log("holdfast.dispatch")

BOOKMARK = "dispatch"
LEADING, LEAD_FOR = "dispatch.leading", 3.0
DISPATCH_EVERY = 0.2
PAGE = 1000
#: How many pages are read at a time: the other maintenance tasks of this process need their turn.
STEPS = 10
#: How often the sizes are compared, but not before `PATIENCE` times the comparison's own duration.
COMPARE_EVERY, PATIENCE = 2.0, 20
#: How far ahead a broker that keeps no time is worked for.
AHEAD = timedelta(seconds=2)

#: After which a job may wait, or does not any more.
TOLD = frozenset(
    kind.name
    for kind in (
        Kind.queued, Kind.retry, Kind.released, Kind.snoozed, Kind.reclaimed, Kind.manual_retry, Kind.redriven,
        Kind.processing, Kind.cancelled, Kind.timed_out,
    )
)  # fmt: skip


class DispatchFeed:
    def __init__(self, engine: Engine, broker: Dispatcher) -> None:
        self._engine, self._store, self._broker, self._clock = engine, engine.store, broker, engine.clock
        self._lead = Leader(self._store, self._clock, LEADING, LEAD_FOR)
        self._compare_at = -math.inf
        self._was_short = False
        self._page: JobId | None = None  #: behind which the rest is to be offered anew
        self._rebuilds = False
        self._soon: list[tuple[float, DispatchEntry]] = []
        self._known: set[tuple[JobId, int]] = set()  #: of those in *soon*

    async def run(self) -> None:
        if not await self._lead.is_ours():
            return
        await self._broker.ask(lambda dispatch: dispatch.ping())
        if not self._broker.there:
            return
        for _ in range(STEPS):
            if not await self._follow():
                break
        if self._clock.monotonic() >= self._compare_at:
            await self._compare()
        if self._rebuilds:
            await self._rebuild()
        if not self._broker.delays:
            await self._offer_due()

    # -- the events -------------------------------------------------------------------------------------------------
    async def _follow(self) -> bool:
        """One page; whether there may be more."""
        before = await self._store.bookmark(BOOKMARK)
        if before is None:
            await self._store.move_bookmark(BOOKMARK, before=None, to=await self._store.newest_event())
            self._begin_to_rebuild("it is new")
            return False
        events = await self._store.events(after=before, limit=PAGE)
        if not events:
            return False
        ids = list(dict.fromkeys(event.job_id for event in events if event.kind in TOLD))
        waiting = await self._broker.bring_up_to_date(ids) if ids else []
        if waiting is None:
            return False
        self._expect(waiting)
        moved = await self._store.move_bookmark(BOOKMARK, before=before, to=events[-1].id)
        return moved and len(events) == PAGE

    # -- the sizes --------------------------------------------------------------------------------------------------
    async def _compare(self) -> None:
        """Twice in a row less than half of what waits, and something is lost: a few may always be on their way."""
        began = self._clock.monotonic()
        depths = await self._store.count_waiting()
        ours = {lane: depth for lane, depth in depths.items() if self._broker.hands_out(lane)}
        sizes = await self._broker.ask(lambda dispatch: dispatch.sizes(list(ours)))
        now = self._clock.monotonic()
        self._compare_at = now + max(COMPARE_EVERY, PATIENCE * (now - began))
        if sizes is None:
            return
        later = sum(depth.later for depth in ours.values()) if self._broker.delays else 0
        short = sizes.later * 2 < later or any(
            sizes.ready[lane] * 2 < depth.due for lane, depth in ours.items()
        )
        if not sizes.built or (short and self._was_short):
            self._begin_to_rebuild("fewer hints than jobs" if sizes.built else "it was emptied")
        self._was_short = short

    def _begin_to_rebuild(self, reason: str) -> None:
        if not self._rebuilds:
            self._rebuilds, self._page = True, None
            log.info("broker.rebuild_started", reason=reason)

    async def _rebuild(self) -> None:
        for _ in range(STEPS):
            page = await self._store.all_waiting(after=self._page, limit=PAGE)
            entries = [entry for entry in page if self._broker.hands_out(entry.lane)]
            self._expect(entries)
            await self._broker.ask(lambda dispatch: dispatch.offer(entries))  # noqa: B023 - awaited here
            if not self._broker.there:
                return
            if len(page) < PAGE:
                self._rebuilds = self._was_short = False
                await self._broker.ask(lambda dispatch: dispatch.built())
                log.info("broker.rebuilt")
                return
            self._page = page[-1].job_id

    # -- for a broker that keeps no time ------------------------------------------------------------------------------
    def _expect(self, waiting: Sequence[DispatchEntry]) -> None:
        """Remember those that are due soon: by the next look the store may have let them into line."""
        if self._broker.delays:
            return
        now = self._clock.monotonic()
        for entry in waiting:
            name = entry.job_id, entry.generation
            if timedelta() < entry.delay <= AHEAD and name not in self._known:
                self._known.add(name)
                heapq.heappush(self._soon, (now + entry.delay.total_seconds(), entry))

    async def _offer_due(self) -> None:
        soon = await self._store.due_soon(AHEAD, PAGE)
        self._expect([entry for entry in soon if self._broker.hands_out(entry.lane)])
        now = self._clock.monotonic()
        due: list[DispatchEntry] = []
        while self._soon and self._soon[0][0] <= now:
            _, entry = heapq.heappop(self._soon)
            self._known.discard((entry.job_id, entry.generation))
            due.append(entry._replace(delay=timedelta()))
        if due:
            await self._broker.ask(lambda dispatch: dispatch.offer(due))

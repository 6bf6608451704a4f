"""Gauges of the jobs, read from the store on demand: rarely, with a short query, and once for all concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.domain.breaker import BreakerState
from holdfast.domain.outbox import Lag
from holdfast.domain.stats import JobStats
from holdfast.engine.engine import Engine
from holdfast.engine.health_inputs import MOST
from holdfast.engine.lane_store import DependencyState
from holdfast.engine.ports import Clock
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.metrics.names import MOST_SETS

log = Log("holdfast.metrics")

#: A reading is valid for at least this long, and for `PATIENCE` times its own duration: however large the database is, reading
#: it takes a twentieth of the time at the most.
FRESH_SECONDS, PATIENCE = 5.0, 20.0
#: A look that takes longer is given up, and the gauges are missing.
LONGEST_LOOK = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    stats: JobStats
    dependency_states: Sequence[DependencyState]
    lags: Sequence[Lag] = ()
    event_lag: timedelta = timedelta()
    queues: Sequence[str] = ()  #: those of the tasks that this process knows


class Gauges:
    def __init__(self, engine: Callable[[], Awaitable[Engine]], clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._looking: asyncio.Task[Seen | None] | None = None
        self._stale_at = 0.0
        self._judged_at: datetime | None = None
        self.seen: Seen | None = None  #: None: the store did not answer
        self.open_seconds: dict[str, float] = {}  #: by the dependency's label

    async def look(self) -> Seen | None:
        """Return a reading that is fresh enough. Callers that ask while another reads get the same one."""
        if self._looking is None and self._clock.monotonic() < self._stale_at:
            return self.seen
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="stats")
        try:
            return await asyncio.shield(self._looking)
        finally:
            if self._looking is not None and self._looking.done():
                self._looking = None

    async def _look(self) -> Seen | None:
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                engine = await self._engine()
                store = engine.store
                self.seen = Seen(
                    await store.stats(MOST),
                    await store.dependency_states(),
                    await store.lags(),
                    await store.event_lag(),
                    sorted({task.policy.queue for task in engine.tasks.values()})[:MOST_SETS],
                )
                self._add_open_time(self.seen.dependency_states)
        except (StoreError, TimeoutError) as error:
            log.warning("metrics.retrying", reason=str(error) or f"no answer within {LONGEST_LOOK:.0f} s")
            self.seen = None
        now = self._clock.monotonic()
        self._stale_at = now + max(FRESH_SECONDS, PATIENCE * (now - began))
        return self.seen

    def _add_open_time(self, dependency_states: Sequence[DependencyState]) -> None:
        """By the store's clock, from the last look on; a breaker that opened since then: from its opening on."""
        for state_of_dependency in dependency_states:
            label, breaker = state_of_dependency.dependency.label, state_of_dependency.breaker
            total = self.open_seconds.setdefault(label, 0.0)
            if breaker.state is BreakerState.CLOSED or breaker.opened_at is None:
                continue
            since = max(breaker.opened_at, self._judged_at) if self._judged_at else state_of_dependency.now
            self.open_seconds[label] = total + max((state_of_dependency.now - since).total_seconds(), 0.0)
        if dependency_states:
            self._judged_at = dependency_states[0].now

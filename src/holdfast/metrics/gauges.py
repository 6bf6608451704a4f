"""Gauges of the jobs, read from the store on demand.

Concurrent requests share one reading, which is cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import DependencyState
from holdfast.engine.tables.dependencies import dependency_states
from holdfast.errors import StoreError
from holdfast.health.inputs import MOST
from holdfast.jobs.machine import Clock
from holdfast.jobs.stats import JobStats
from holdfast.logging import Log
from holdfast.metrics.names import MOST_SETS
from holdfast.outbox.lags import read_lags
from holdfast.outbox.model import Lag
from holdfast.resilience.breaker import BreakerState

log = Log("holdfast.metrics")

#: A reading is valid for at least this long, and for `PATIENCE` times its own duration, so that reading takes
#: at most 5 % of the time however large the database is.
FRESH_SECONDS, PATIENCE = 5.0, 20.0
#: A reading that takes longer is cancelled, in seconds. The gauges have no samples then.
READ_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of the store at one moment."""

    stats: JobStats
    dependency_states: Sequence[DependencyState]
    lags: Sequence[Lag] = ()
    event_lag: timedelta = timedelta()
    measures: Mapping[str, float] = field(default_factory=dict)  #: of extensions
    queues: Sequence[str] = ()  #: the queues of the tasks that this process has


class Gauges:
    """Reads the gauges and caches them."""

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        clock: Clock,
        measures: Callable[[], Awaitable[Mapping[str, float]]],
    ) -> None:
        self._engine, self._clock, self._measures = engine, clock, measures
        self._reading: asyncio.Task[Reading | None] | None = None
        self._stale_at = 0.0
        self._read_at: datetime | None = None
        self.latest: Reading | None = None  #: the latest reading, or None if the store did not answer
        self.open_seconds: dict[str, float] = {}  #: by the dependency's label

    async def read(self) -> Reading | None:
        """Return a fresh reading, or None if the store does not answer.

        Concurrent callers share one reading.
        """
        if self._reading is None and self._clock.monotonic() < self._stale_at:
            return self.latest
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="stats")
        try:
            return await asyncio.shield(self._reading)
        finally:
            if self._reading is not None and self._reading.done():
                self._reading = None

    async def _read(self) -> Reading | None:
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(READ_WITHIN):
                engine = await self._engine()
                store = engine.store
                self.latest = Reading(
                    await store.queries.stats(MOST),
                    await dependency_states(store),
                    await read_lags(store),
                    await store.queries.event_lag(),
                    await self._measures(),
                    sorted({task.policy.queue for task in engine.tasks.values()})[:MOST_SETS],
                )
                self._add_open_time(self.latest.dependency_states)
        except (StoreError, TimeoutError) as error:
            log.warning("metrics.retrying", reason=str(error) or f"no answer within {READ_WITHIN:.0f} s")
            self.latest = None
        now = self._clock.monotonic()
        self._stale_at = now + max(FRESH_SECONDS, PATIENCE * (now - began))
        return self.latest

    def _add_open_time(self, states: Sequence[DependencyState]) -> None:
        """Add the time for which each breaker was open since the last reading, by the store's clock."""
        for state in states:
            label, breaker = state.dependency.label, state.breaker
            total = self.open_seconds.setdefault(label, 0.0)
            if breaker.state is BreakerState.CLOSED or breaker.opened_at is None:
                continue
            since = max(breaker.opened_at, self._read_at) if self._read_at else state.now
            self.open_seconds[label] = total + max((state.now - since).total_seconds(), 0.0)
        if states:
            self._read_at = states[0].now

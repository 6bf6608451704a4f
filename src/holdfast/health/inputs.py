"""Read the inputs of the health checks (`holdfast.health.judgement`) by a few cheap queries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from holdfast.engine.engine import Engine
from holdfast.engine.ports import ChecksWrites, Store
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.engine.tables.dependencies import dependency_states
from holdfast.engine.tables.holds import holds_in_force
from holdfast.errors import SchemaMismatch, StoreError
from holdfast.health.judgement import HealthInputs
from holdfast.outbox.lags import read_lags

#: Counts stop here: more than a million jobs make no difference to a check.
MOST = 1_000_000
#: The most lost and stuck attempts that are counted.
MOST_ATTEMPTS = 1000
#: The most seconds that the store may take to answer before a process is not ready.
READY_WITHIN = 1.0


async def read_health_inputs(engine: Engine, schedules: Collection[str] = ()) -> HealthInputs:
    """Return the current inputs of the health checks. *schedules* are those whose ticks are checked."""
    store, limits = engine.store, engine.recovery.stuck_limits()
    await check_writes(store)
    return HealthInputs(
        stats=await store.queries.stats(MOST),
        now=await store.now(),
        holds=await holds_in_force(store),
        breakers={one.dependency.label: one.breaker.state for one in await dependency_states(store)},
        workers=len(await store.queries.workers()),
        lost=len(await store.expired(MOST_ATTEMPTS)),
        lags=await read_lags(store),
        stuck=len(await store.stuck(limits, MOST_ATTEMPTS)) if limits else 0,
        ticks={tick.name: tick.due for tick in await schedule_ticks.every(store) if tick.name in schedules}
        if schedules
        else {},
    )


async def not_ready(engine: Callable[[], Awaitable[Engine]]) -> str | None:
    """Return why this process cannot work now, without internal details, or None if it can."""
    try:
        async with asyncio.timeout(READY_WITHIN):
            store = (await engine()).store
            await holds_in_force(store)
    except SchemaMismatch:
        return "the database schema is of another version; run `holdfast migrate`"
    except (StoreError, TimeoutError):
        return "the database does not answer"
    try:
        async with asyncio.timeout(READY_WITHIN):
            await check_writes(store)
    except (StoreError, TimeoutError):
        return "the database cannot be written to; is its disk full?"
    return None


async def check_writes(store: Store) -> None:
    """Raise `StoreUnavailable` if the store can be read but not written."""
    if isinstance(store, ChecksWrites):
        await store.check_writes()

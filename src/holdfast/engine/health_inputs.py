"""Gathers what health is judged by (`holdfast.domain.health`): a few cheap looks at the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from holdfast.domain.health import HealthInputs
from holdfast.engine.engine import Engine
from holdfast.engine.ports import ChecksWrites, Store
from holdfast.errors import SchemaMismatch, StoreError

#: No count goes on beyond this: a backlog of a million is as bad as one of two.
MOST = 1_000_000
#: How many lost and stuck attempts are looked for.
MOST_SICK = 1000
#: How long the store may take to answer a process that wants to be called ready.
READY_WITHIN = 1.0


async def read_health_inputs(engine: Engine, schedules: Collection[str] = ()) -> HealthInputs:
    """As they are now. Of *schedules* it is known that somebody should see to them."""
    store, limits = engine.store, engine.stuck_limits()
    await check_writes(store)
    return HealthInputs(
        stats=await store.stats(MOST),
        now=await store.now(),
        holds=await store.holds(),
        breakers={
            state_of_dependency.dependency.label: state_of_dependency.breaker.state
            for state_of_dependency in await store.dependency_states()
        },
        workers=len(await store.workers()),
        lost=len(await store.expired(MOST_SICK)),
        lags=await store.lags(),
        stuck=len(await store.stuck(limits, MOST_SICK)) if limits else 0,
        ticks={tick.name: tick.due for tick in await store.ticks() if tick.name in schedules}
        if schedules
        else {},
    )


async def not_ready(engine: Callable[[], Awaitable[Engine]]) -> str | None:
    """Why this process cannot do its work now, in words for anybody; None: it can."""
    try:
        async with asyncio.timeout(READY_WITHIN):
            store = (await engine()).store
            await store.holds()
    except SchemaMismatch:
        return "the database's schema is not of this version; run `holdfast migrate`"
    except (StoreError, TimeoutError):
        return "the database does not answer"
    try:
        async with asyncio.timeout(READY_WITHIN):
            await check_writes(store)
    except (StoreError, TimeoutError):
        return "the database cannot be written; is its disk full?"
    return None


async def check_writes(store: Store) -> None:
    """Raise `StoreUnavailable` while the store can be read and not written."""
    if isinstance(store, ChecksWrites):
        await store.check_writes()

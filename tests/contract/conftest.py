"""One contract, every store: each test here runs on memory, SQLite and PostgreSQL, the oldest and the newest we serve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.domain.duration import Duration, duration
from holdfast.engine.ports import Clock, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from holdfast.wiring import SystemClock, SystemThreads
from tests.contract.world import World

STORES = ("memory", "sqlite", "postgres", "postgres18")


@pytest.fixture(params=STORES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param.startswith("postgres"):
        async for world in _postgres_world(request):
            yield world
        return
    clock = ManualClock()
    store: Store
    if request.param == "memory":
        store = MemoryStore(clock)
    else:
        store = SqliteStore(str(tmp_path / "jobs.db"), clock, SystemThreads())
    await store.open()

    async def advance(by: Duration) -> None:
        clock.advance(by)

    yield World(store, clock, advance)
    assert await store.violations() == []
    await store.close()


async def _postgres_world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    from holdfast.stores.postgres import PostgresStore

    url = request.getfixturevalue(f"{request.param}_url")
    clock: Clock = SystemClock()
    store = PostgresStore(url, clock, SystemThreads())
    await store.migrate()
    await store.open()

    async def advance(by: Duration) -> None:
        await store.shift_clock(duration(by))

    yield World(store, clock, advance)
    assert await store.violations() == []
    await store.close()


@pytest.fixture
def store(world: World) -> Store:
    return world.store

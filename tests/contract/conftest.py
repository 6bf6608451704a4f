"""One contract, every store: each test here runs on memory, SQLite and PostgreSQL, the oldest and the newest we serve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from holdfast.domain.duration import Duration, duration
from holdfast.engine.ports import Clock, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from holdfast.wiring import SystemClock, SystemThreads
from tests.contract.world import World
from tests.services.postgres import Postgres

TEMPLATE = "holdfast_template"
_numbers = count(1)
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

    async with migrated(request.getfixturevalue(request.param)) as url:
        clock: Clock = SystemClock()
        store = PostgresStore(url, clock, SystemThreads())
        await store.open()

        async def advance(by: Duration) -> None:
            await store.shift_clock(duration(by))

        yield World(store, clock, advance)
        assert await store.violations() == []
        await store.close()


@asynccontextmanager
async def migrated(server: Postgres) -> AsyncIterator[str]:
    """A new database with our schema in it: a copy of one that was migrated, which is quicker than migrating each."""
    from holdfast.stores.postgres import PostgresStore

    if TEMPLATE not in server.databases:
        template = server.create_database(TEMPLATE)
        await PostgresStore(template, SystemClock(), SystemThreads()).migrate()
    name = f"contract_{next(_numbers)}"
    yield server.create_database(name, TEMPLATE)
    server.drop_database(name)


@pytest.fixture
def store(world: World) -> Store:
    return world.store

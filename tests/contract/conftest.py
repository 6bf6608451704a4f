"""One contract, every store: each test here runs on memory, on SQLite, on the oldest PostgreSQL that we serve, and on the
newest through PgBouncer in transaction mode; what is most of life also on the newest without it (`postgres18`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devservices.pgbouncer import PgBouncer
from devservices.postgres import Postgres
from holdfast.engine.ports import Store
from holdfast.jobs.machine import Clock
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from holdfast.values.duration import Duration, duration
from holdfast.wiring import SystemClock, SystemThreads
from tests.conftest import installed
from tests.contract.world import World
from tests.databases import new_database, new_file

STORES = ("memory", "sqlite", "postgres", "pooled")
ON_POSTGRES = {"postgres", "postgres18", "pooled"}


def pytest_itemcollected(item: pytest.Item) -> None:
    parameters = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    if parameters.get("world") in ON_POSTGRES:
        item.add_marker(pytest.mark.postgres)


@pytest.fixture(params=STORES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param in ON_POSTGRES:
        pooler = request.getfixturevalue("one_session") if request.param == "pooled" else None
        server = request.getfixturevalue("postgres18" if pooler else request.param)
        async with on_postgres(server, pooler) as world:
            yield world
        return
    clock = ManualClock()
    store: Store
    if request.param == "memory":
        store = MemoryStore(clock)
    else:
        new_file(tmp_path / "jobs.db")
        store = SqliteStore(str(tmp_path / "jobs.db"), clock, SystemThreads())
    await store.open()

    async def advance(by: Duration) -> None:
        clock.advance(by)

    yield World(store, clock, advance)
    assert await store.queries.violations() == []
    await store.close()


@pytest.fixture(scope="session")
def one_session(postgres18: Postgres) -> Iterator[PgBouncer]:
    """It has a single session to lend. That is hard on whoever would need two at once, and it lets the tests move the
    clock, which is a setting of the session."""
    with installed(lambda: PgBouncer(postgres18, sessions=1)) as running:
        yield running


@asynccontextmanager
async def on_postgres(server: Postgres, pooler: PgBouncer | None = None) -> AsyncIterator[World]:
    from holdfast.stores.postgres import PostgresStore

    with new_database(server) as url:
        way = url if pooler is None else f"{pooler.route(url)}?prepare=off"
        clock: Clock = SystemClock()
        store = PostgresStore(way, clock, SystemThreads())
        await store.open()

        async def advance(by: Duration) -> None:
            await store.shift_clock(duration(by))

        try:
            yield World(store, clock, advance)
            assert await store.queries.violations() == []
        finally:
            await store.close()


@pytest.fixture
def store(world: World) -> Store:
    return world.store

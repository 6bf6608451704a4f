"""The whole contract once more, through PgBouncer in transaction mode.

It has a single session to lend here. That is hard on whoever would need two at once, and it lets the tests move the clock,
which is a setting of the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from holdfast.domain.duration import Duration, duration
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemThreads
from tests.conftest import installed
from tests.contract.conftest import migrated
from tests.contract.test_credits import shop  # noqa: F401 - its tests ask for it
from tests.contract.world import World
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Postgres

# E51 E52: the whole file

#: A pooler passes no NOTIFY on: what another process has published is found by the poll.
LEFT_OUT = {"test_who_waits_is_woken_by_a_message"}

for page in sorted(Path(__file__).parent.glob("test_*.py")):
    if page.stem != Path(__file__).stem:
        names = vars(import_module(f"tests.contract.{page.stem}"))
        tests = {
            name: value for name, value in names.items() if name.startswith("test_") and name not in LEFT_OUT
        }
        assert not tests.keys() & globals().keys(), "two tests of one name would hide each other"
        globals().update(tests)


@pytest.fixture(scope="module")
def one_session(postgres: Postgres) -> Iterator[PgBouncer]:
    with installed(lambda: PgBouncer(postgres, sessions=1)) as running:
        yield running


@pytest.fixture
async def world(one_session: PgBouncer, postgres: Postgres) -> AsyncIterator[World]:
    async with migrated(postgres) as url:
        store = PostgresStore(f"{one_session.route(url)}?prepare=off", SystemClock(), SystemThreads())
        await store.open()

        async def advance(by: Duration) -> None:
            await store.shift_clock(duration(by))

        yield World(store, SystemClock(), advance)
        assert await store.violations() == []
        await store.close()


async def test_the_schema_is_made_through_it_too(one_session: PgBouncer, postgres_url: str) -> None:
    store = PostgresStore(f"{one_session.route(postgres_url)}?prepare=off", SystemClock(), SystemThreads())
    assert await store.migrate()
    assert await store.migrate() == []

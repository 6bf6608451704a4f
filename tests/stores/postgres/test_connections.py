"""The connections of a store on PostgreSQL: few when it is quiet, and nobody waits for somebody else's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from devservices.proxy import Proxy
from holdfast import StoreUnavailable
from holdfast.jobs.job import JobSpec, Lane, NewJob
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.connections import Connections
from holdfast.wiring import SystemClock, SystemIds, SystemThreads
from tests.apps import Database, new_app, work

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lines(postgres_url: str) -> AsyncIterator[Connections]:
    made = Connections(postgres_url)
    yield made
    await made.close()


def connections(url: str, statement: str = "") -> int:
    """How many of ours there are, whose statement is or was that."""
    found = Database(url).execute(
        """SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'holdfast' AND query LIKE ?""",
        f"%{statement}%",
    )
    return int(found[0][0])


async def until(url: str, statement: str, count: int) -> None:
    async with asyncio.timeout(20):
        while connections(url, statement) != count:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.02)


async def test_a_quiet_process_has_few_connections(postgres_url: str) -> None:  # E46
    app = new_app(postgres_url)

    @app.task
    async def ship(order: int) -> int:
        return order

    async with app:
        for order in range(5):
            handle = await ship.enqueue(order)
            await work(app)
            assert await handle.result("30s") == order
        store: Any = (await app.runtime.engine()).store
        # How many were busy at the same time is left to chance.
        assert connections(postgres_url) < len(store._connections._lines)


async def test_no_line_waits_for_another(lines: Connections, postgres_url: str) -> None:  # E46
    async with lines.take("read"), asyncio.timeout(20):
        async with lines.take("claim") as second, lines.take("settle") as third:
            assert await second.fetchval("SELECT 1") == await third.fetchval("SELECT 1") == 1
    assert connections(postgres_url) == 3
    for _ in range(3):
        async with lines.take("people") as one:
            assert await one.fetchval("SELECT 1") == 1
    assert connections(postgres_url) == 3


async def test_a_line_goes_on_with_the_connection_it_had(lines: Connections) -> None:  # E46
    async with lines.take("read") as read, lines.take("claim") as claim:
        pass
    for _ in range(2):
        async with lines.take("claim") as one, lines.take("read") as other:
            assert (one, other) == (claim, read)


async def test_the_loss_of_one_connection_is_the_end_of_those_that_nobody_uses(
    lines: Connections,
) -> None:  # E51
    """Behind a network that swallows everything each would take its time to be found out."""
    async with lines.take("read") as read, lines.take("claim") as claim:
        pass
    with pytest.raises(StoreUnavailable):
        async with lines.take("read"):
            raise asyncpg.ConnectionDoesNotExistError("gone")
    assert (read.is_closed(), claim.is_closed()) == (True, True)
    async with lines.take("claim") as again:
        assert await again.fetchval("SELECT 1") == 1


async def test_a_caller_who_gives_up_ends_its_statement_and_its_connection_and_no_other(
    lines: Connections, postgres_url: str
) -> None:  # E51
    async with lines.take("read") as read, lines.take("claim") as claim:
        pass

    async def wait() -> None:
        async with lines.take("read") as connection:
            await connection.execute("SELECT pg_sleep(60) AS sleeps")

    waiting = asyncio.create_task(wait())
    await until(postgres_url, "sleeps", 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(postgres_url, "sleeps", 0)
    assert (read.is_closed(), claim.is_closed()) == (True, False)


@pytest.mark.parametrize("tls", ["prefer", "disable"])  # the driver's own default, and that of these tests
async def test_a_caller_who_gives_up_while_a_connection_is_made_leaves_nothing_behind(
    postgres_url: str, postgres_proxy: Proxy, tls: str
) -> None:  # E51
    lines = Connections(f"{postgres_proxy.route(postgres_url)}?sslmode={tls}")
    unpublished: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: unpublished.append(told))
    postgres_proxy.delay = 0.05
    gave_up = 0
    for moment in range(24):
        waiting = asyncio.create_task(lines.connect())
        for _ in range(moment):
            await asyncio.sleep(0 if moment < 16 else 0.01)
        waiting.cancel()
        try:
            await (await waiting).close()  # made before it was given up
        except asyncio.CancelledError:
            gave_up += 1
    await lines.close()
    gc.collect()
    assert unpublished == []
    assert gave_up >= 16
    await until(postgres_url, "", 0)


async def test_whoever_waits_on_while_the_store_is_closed_does_not_make_it_listen_again(
    postgres_url: str,
) -> None:  # E51
    store = PostgresStore(postgres_url, SystemClock(), SystemThreads())
    for _ in range(2):  # a store may be opened again
        await store.open()
        waiting = asyncio.create_task(store.wait_for_work([], 60))
        await until(postgres_url, "LISTEN", 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await store.close()
        store._notifier._listen_after = 0.0  # not only because it has just tried
        await store.wait_for_work([], 0.2)
        await until(postgres_url, "", 0)


async def test_a_worker_without_work_asks_one_question_at_a_time(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E46
    asked: list[str] = []
    fetch: Any = asyncpg.Connection.fetch

    async def note(connection: Any, query: str, *args: Any) -> Any:
        asked.append(query)
        return await fetch(connection, query, *args)

    monkeypatch.setattr(asyncpg.Connection, "fetch", note)
    clock = SystemClock()
    idle, other = (PostgresStore(postgres_url, clock, SystemThreads()) for _ in range(2))
    lanes = [Lane("default", "email"), Lane("default", "email", fair=True)]
    await idle.open()
    await idle.register(lanes)
    try:
        session = await idle.open_session("w1", timedelta(minutes=1))
        assert await idle.claim(session, lanes, 10) == []
        asked.clear()
        assert await idle.claim(session, lanes, 10) == []
        assert len(asked) == 1
        await other.open()
        await other.enqueue(
            [NewJob(SystemIds().job_id(), "{}", JobSpec(lane=lanes[1], owner="ada", max_attempts=1))]
        )
        assert len(await idle.claim(session, lanes, 10)) == 1  # though nobody has told
    finally:
        await idle.close()
        await other.close()

"""Transactions of callers on PostgreSQL: any number at once, on few connections, each as new."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.stores.postgres import transaction_pool

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(postgres_url: str) -> Holdfast:
    return Holdfast(postgres_url)


async def test_a_hundred_transactions_at_once_share_a_few_connections(
    app: Holdfast, postgres_url: str
) -> None:  # E43
    most = 0

    @app.task
    async def ship(n: int) -> None: ...

    async def one(n: int, watching: asyncpg.Connection) -> None:
        nonlocal most
        async with app.transaction() as connection:
            await ship.options(connection=connection).enqueue(n)
            async with looking:
                sql = """SELECT count(*) FROM pg_stat_activity
                      WHERE application_name = 'holdfast' AND datname = current_database()"""
                most = max(most, await watching.fetchval(sql))

    looking = asyncio.Lock()
    watching = await asyncpg.connect(postgres_url)
    async with app:
        await asyncio.gather(*(one(n, watching) for n in range(100)))
        assert await app.jobs.count(task="ship") == 100
    await watching.close()
    assert 2 < most <= transaction_pool.MOST + 6  # and a line for each kind of work


async def test_nothing_of_a_caller_is_left_for_the_next(app: Holdfast) -> None:
    async with app:
        async with app.transaction() as connection:
            first = await connection.fetchval("SELECT pg_backend_pid()")
            await connection.execute("SET search_path = nowhere")
            await connection.execute("SELECT pg_advisory_lock(7)")
        async with app.transaction() as connection:
            assert await connection.fetchval("SELECT pg_backend_pid()") == first
            assert await connection.fetchval("SHOW search_path") == '"$user", public'
            assert await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_whoever_gives_up_before_the_transaction_begins_leaves_no_connection_open(
    app: Holdfast,
) -> None:
    async def nothing() -> None:
        async with app.transaction():
            raise AssertionError("it was given up before")

    async with app:
        async with app.transaction() as connection:
            pass
        giving_up = asyncio.create_task(nothing())
        await asyncio.sleep(0)  # it has the connection by now, and waits until it is as new
        giving_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await giving_up
        assert connection.is_closed()


async def test_a_cancelled_transaction_is_undone_and_its_connection_ended(app: Holdfast) -> None:
    @app.task
    async def ship() -> None: ...

    begun, pids = asyncio.Event(), []

    async def wait() -> None:
        async with app.transaction() as connection:
            pids.append(await connection.fetchval("SELECT pg_backend_pid()"))
            await ship.options(connection=connection).enqueue()
            begun.set()
            await connection.execute("SELECT pg_sleep(30)")

    async with app:
        waiting = asyncio.create_task(wait())
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with app.transaction() as connection:
            assert await connection.fetchval("SELECT pg_backend_pid()") not in pids
        assert await app.jobs.count(task="ship") == 0


async def test_a_connection_that_was_lost_meanwhile_is_replaced(app: Holdfast, postgres_url: str) -> None:
    async with app:
        async with app.transaction() as connection:
            first = await connection.fetchval("SELECT pg_backend_pid()")
        other = await asyncpg.connect(postgres_url)
        await other.execute("SELECT pg_terminate_backend($1)", first)
        await other.close()
        async with app.transaction() as connection:
            assert await connection.fetchval("SELECT pg_backend_pid()") != first


async def test_when_all_are_in_use_a_caller_is_told_after_a_while(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_pool, "MOST", 1)
    monkeypatch.setattr(transaction_pool, "WAIT_SECONDS", 0.05)
    async with app, app.transaction():
        with pytest.raises(StoreUnavailable, match=r"^all 1 connections to .* keep transactions short$"):
            async with app.transaction():
                pass

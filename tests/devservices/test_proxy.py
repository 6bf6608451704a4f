"""The faults our tests inject do what their names say, seen from a real client of a real server."""

import asyncio
import contextlib
import socket
import time

import asyncpg
import psycopg
import pytest

from devservices.proxy import Proxy

LOST = (asyncpg.PostgresConnectionError, OSError)


async def rows(url: str) -> list[int]:
    connection = await asyncpg.connect(url)
    try:
        return [row["id"] for row in await connection.fetch("SELECT id FROM t ORDER BY id")]
    finally:
        await connection.close()


@pytest.fixture
def table_url(postgres_url: str) -> str:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    return postgres_url


async def test_an_eaten_answer_looks_lost_but_the_server_has_committed(
    table_url: str, postgres_proxy: Proxy
) -> None:
    connection = await asyncpg.connect(postgres_proxy.route(table_url))
    loss = postgres_proxy.lose_answer()
    with pytest.raises(LOST):
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES (1)")
    assert loss.is_set()
    assert connection.is_closed()
    assert await rows(table_url) == [1]


async def test_an_eaten_request_looks_the_same_but_nothing_was_committed(
    table_url: str, postgres_proxy: Proxy
) -> None:
    connection = await asyncpg.connect(postgres_proxy.route(table_url))
    loss = postgres_proxy.lose_request()
    with pytest.raises(LOST):
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES (1)")
    assert loss.is_set()
    assert await rows(table_url) == []


async def test_a_single_statement_can_lose_its_answer_with_its_rows(
    table_url: str, postgres_proxy: Proxy
) -> None:
    connection = await asyncpg.connect(postgres_proxy.route(table_url))
    loss = postgres_proxy.lose_answer("INSERT")
    assert await connection.fetchval("SELECT 1") == 1  # another tag passes
    assert not loss.is_set()
    with pytest.raises(LOST):
        await connection.fetch("INSERT INTO t VALUES (7) RETURNING id")
    assert loss.is_set()
    assert await rows(table_url) == [7]


async def test_an_answer_without_a_tag_is_eaten_as_any_statement(
    table_url: str, postgres_proxy: Proxy
) -> None:
    connection = await asyncpg.connect(postgres_proxy.route(table_url))
    loss = postgres_proxy.lose_answer(None)
    with pytest.raises(LOST):
        await connection.fetchval("INSERT INTO t VALUES (8) RETURNING id")  # one row is asked for, so no tag
    assert loss.is_set()
    assert await rows(table_url) == [8]


def test_the_answer_to_a_commit_of_psycopg_is_eaten_too(table_url: str, postgres_proxy: Proxy) -> None:
    connection = psycopg.connect(postgres_proxy.route(table_url))
    connection.execute("INSERT INTO t VALUES (1)")
    loss = postgres_proxy.lose_answer()
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    assert loss.is_set()
    assert connection.closed
    with psycopg.connect(table_url) as direct:
        assert direct.execute("SELECT id FROM t").fetchall() == [(1,)]


async def test_only_one_answer_is_eaten(table_url: str, postgres_proxy: Proxy) -> None:
    first = await asyncpg.connect(postgres_proxy.route(table_url))
    second = await asyncpg.connect(postgres_proxy.route(table_url))
    postgres_proxy.lose_answer()
    with pytest.raises(LOST):
        await first.execute("BEGIN; INSERT INTO t VALUES (1); COMMIT")
    await second.execute("BEGIN; INSERT INTO t VALUES (2); COMMIT")
    await second.close()
    assert await rows(table_url) == [1, 2]


async def test_reset_cuts_live_connections_and_new_ones_pass(
    postgres_url: str, postgres_proxy: Proxy
) -> None:
    connection = await asyncpg.connect(postgres_proxy.route(postgres_url))
    assert postgres_proxy.reset() == 1
    with pytest.raises((*LOST, asyncpg.InterfaceError)):
        await connection.fetchval("SELECT 1")
    again = await asyncpg.connect(postgres_proxy.route(postgres_url))
    assert await again.fetchval("SELECT 1") == 1
    await again.close()


async def test_refused_connections_are_reset(postgres_url: str, postgres_proxy: Proxy) -> None:
    postgres_proxy.refuse = True
    with pytest.raises(LOST):
        await asyncpg.connect(postgres_proxy.route(postgres_url))


async def test_a_black_hole_holds_what_is_sent_until_it_ends(
    postgres_url: str, postgres_proxy: Proxy
) -> None:
    connection = await asyncpg.connect(postgres_proxy.route(postgres_url))
    postgres_proxy.black_hole = True
    asking = asyncio.create_task(connection.fetchval("SELECT 1"))
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert not done
    postgres_proxy.heal()
    assert await asking == 1
    await connection.close()


async def test_delay_and_trickle_slow_an_answer_down(postgres_url: str, postgres_proxy: Proxy) -> None:
    connection = await asyncpg.connect(postgres_proxy.route(postgres_url))
    postgres_proxy.delay = 0.1
    begun = time.monotonic()
    await connection.execute("SELECT 1")
    assert time.monotonic() - begun >= 0.2  # once each way
    postgres_proxy.heal()
    postgres_proxy.trickle = 10_000
    begun = time.monotonic()
    assert len(await connection.fetchval("SELECT repeat('x', 3000)")) == 3000
    assert time.monotonic() - begun >= 0.25
    await connection.close()


def test_connections_on_their_way_in_end_with_the_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(30):
            with Proxy(*server.getsockname(), postgres=False) as proxy:
                callers = [socket.create_connection((proxy.host, proxy.port), timeout=5) for _ in range(3)]
            for caller in callers:
                with caller, contextlib.suppress(ConnectionResetError):
                    assert caller.recv(1) == b""

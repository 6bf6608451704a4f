"""A batch of the relay costs the same, however many messages were relayed while a transaction of others stays open.

VACUUM removes nothing that such a transaction could still see, so what was relayed leaves its row versions and index
entries behind. The cost is counted in pages of the table and its indexes, not in seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import asyncpg
import psycopg
import pytest

from holdfast.outbox.lags import read_lags
from holdfast.outbox.port import PutOff
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemThreads
from tests.contract.outboxes import SPAN, TOPIC, a_message

pytestmark = pytest.mark.anyio

HAND = 50
ROUNDS = 60  #: of two hands each
NONE, MANY, FEW = "no keys", "a hundred keys", "five keys"
#: Of the n-th message.
KEYS: dict[str, Callable[[int], str | None]] = {
    NONE: lambda n: None,
    MANY: lambda n: f"{n}",
    FEW: lambda n: f"{n % 5}",
}
WORK = """
SELECT (SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) FROM pg_statio_all_tables
         WHERE schemaname = 'holdfast' AND relname = %(table)s),
       (SELECT sum(idx_tup_read) FROM pg_stat_all_indexes WHERE schemaname = 'holdfast' AND relname = %(table)s)"""


class Work(NamedTuple):
    pages: int
    entries: int  #: of indexes, with those of dead rows


@pytest.fixture
async def store(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """A store whose connections report what they have read after each statement."""
    for name in ("fetch", "fetchval"):
        monkeypatch.setattr(asyncpg.Connection, name, reporting(getattr(asyncpg.Connection, name)))
    made = PostgresStore(postgres_url, SystemClock(), SystemThreads())
    await made.open()
    yield made
    await made.close()


def reporting(run: Any) -> Any:
    async def reported(connection: Any, *given: Any, **named: Any) -> Any:
        rows = await run(connection, *given, **named)
        if not connection.is_in_transaction():
            await connection.execute("SELECT pg_stat_force_next_flush()")
        return rows

    return reported


def work(url: str, table: str) -> Work:
    """What was looked at in this table so far."""
    with psycopg.connect(url) as connection:
        row = connection.execute(WORK, {"table": table}).fetchone()
        assert row is not None
        return Work(*map(int, row))


async def cost(url: str, table: str, act: Awaitable[None]) -> Work:
    before = work(url, table)
    await act
    return Work(*(now - then for now, then in zip(work(url, table), before, strict=True)))


@contextmanager
def open_transaction(url: str, *, writes: bool = False) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT pg_current_xact_id()" if writes else "SELECT 1")
        yield
        connection.rollback()


async def relay(store: PostgresStore, messages: int) -> None:
    """With two hands, as a route has them: the second takes while the first delivers."""
    done = 0
    async with asyncio.timeout(30):
        while done < messages:
            hands = [await store.outbox.take({TOPIC: False}, HAND, SPAN) for _ in range(2)]
            done += sum([await store.outbox.delivered(hand) for hand in hands])
            await store.outbox.next_due([TOPIC])


async def publish(store: PostgresStore, key: Callable[[int], str | None]) -> None:
    await store.outbox.publish([a_message(key=key(n)) for n in range(2 * HAND)])


def assert_flat(costs: list[Work]) -> None:
    """The last ten cost at most twice as much as ten of the first."""
    for kind in Work._fields:
        each = [getattr(cost, kind) for cost in costs]
        assert sum(each[5:15]) > 0
        assert sum(each[-10:]) <= 2 * sum(each[5:15]), f"{kind}: {each}"


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("writes", [False, True], ids=["reads", "writes"])
async def test_a_batch_costs_the_same_after_many_beside_an_open_transaction(
    store: PostgresStore, postgres_url: str, kind: str, writes: bool
) -> None:  # E44 E54
    costs = []
    with open_transaction(postgres_url, writes=writes):
        for _ in range(ROUNDS):
            await publish(store, KEYS[kind])
            await store.shift_clock(timedelta(seconds=5))  # the time of those relayed before has run out
            costs.append(await cost(postgres_url, "outbox", relay(store, 2 * HAND)))
    assert_flat(costs)
    assert await read_lags(store) == []


async def test_messages_that_are_held_up_for_long_do_not_make_the_others_dearer(
    store: PostgresStore, postgres_url: str
) -> None:  # E44 E54
    costs = []
    with open_transaction(postgres_url):
        await store.outbox.publish([a_message("first", key="k"), a_message("second", key="k")])
        first = await store.outbox.take({TOPIC: False}, 1, SPAN)
        assert await store.outbox.put_off([PutOff(one, timedelta(days=1), "away") for one in first]) == 1
        for _ in range(ROUNDS):
            await publish(store, KEYS[NONE])
            await store.shift_clock(timedelta(seconds=5))
            costs.append(await cost(postgres_url, "outbox", relay(store, 2 * HAND)))
    assert_flat(costs)
    assert [(lag.topic, lag.waiting) for lag in await read_lags(store)] == [(TOPIC, 2)]


async def test_removing_old_messages_costs_the_same_round_after_round(
    store: PostgresStore, postgres_url: str
) -> None:  # E44 E54
    for _ in range(40):
        await publish(store, KEYS[NONE])
        await relay(store, 2 * HAND)
    await store.shift_clock(timedelta(days=8))
    with open_transaction(postgres_url):
        costs = [await cost(postgres_url, "outbox_sent", forget(store, 2 * HAND)) for _ in range(40)]
    assert_flat(costs)
    assert await store.outbox.forget(timedelta(days=7), 10) == 0


async def forget(store: PostgresStore, messages: int) -> None:
    assert await store.outbox.forget(timedelta(days=7), messages) == messages

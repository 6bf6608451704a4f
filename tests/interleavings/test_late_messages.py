"""A relay begins to look where the lowest message was (`outbox_marks`). Messages that come below are found all the same: those
of callers that commit long after their message took a number, replayed ones, and those that other relays moved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any

import psycopg
import pytest

from devservices.postgres import Postgres
from holdfast.outbox.model import Taken
from holdfast.stores.postgres import PostgresStore, outbox_marks
from holdfast.stores.postgres.outbox_marks import NO_MARK, Mark
from holdfast.wiring import SystemClock
from tests.contract.outboxes import TOPIC, a_message, drain, names, of, publish, put_off, take
from tests.databases import new_database

END_OURS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'holdfast'"""
_others = count(1)


@asynccontextmanager
async def stores(postgres: Postgres, how_many: int) -> AsyncIterator[list[PostgresStore]]:
    """Several processes on one new database."""
    with new_database(postgres) as url:
        async with AsyncExitStack() as ends:
            made = [PostgresStore(url, SystemClock(), None) for _ in range(how_many)]
            for store in made:
                await store.open()
                ends.push_async_callback(store.close)
            yield made


async def pass_by(store: PostgresStore, number: int) -> None:
    """Relay others until the mark of this store is above *number* in every line."""
    for _ in range(4 * outbox_marks.TAKES):
        name = f"0{next(_others)}"
        await publish(store, name)
        assert await drain(store) == [name]
    lowest = store.outbox.marks.of([TOPIC]).lowest
    assert lowest is not None
    assert min(lowest) > number


async def test_a_message_that_commits_late_is_taken_before_later_ones_of_its_key(
    postgres: Postgres,
) -> None:  # E44
    async with stores(postgres, 1) as [store]:
        async with store.transaction() as connection:
            await store.outbox.publish_in(connection, [a_message("a1", key="a"), a_message("1")])
            await pass_by(store, 2)
        assert await store.outbox.next_due([TOPIC]) == timedelta()
        await publish(store, "a2")
        assert names(await take(store)) == ["a1", "1", "a2"]


async def test_a_late_message_in_the_hand_of_another_relay_holds_up_its_key(
    postgres: Postgres,
) -> None:  # E44
    async with stores(postgres, 2) as [one, other]:
        async with one.transaction() as connection:
            await one.outbox.publish_in(connection, [a_message("a1", key="a")])
            await pass_by(one, 1)
        hand = await take(other, 1)
        assert names(hand) == ["a1"]
        await publish(one, "a2", "b1")
        assert names(await take(one, 1)) == ["b1"]  # a2 has stepped behind a1
        await publish(one, "a3")
        assert await take(one) == []
        assert await other.outbox.put_off(put_off(*hand, seconds=0)) == 1
        assert await drain(one) == ["a1", "a2", "a3"]


async def test_what_stands_behind_a_late_message_is_let_into_line_by_whoever_delivers_it(
    postgres: Postgres,
) -> None:  # E44
    async with stores(postgres, 2) as [one, other]:
        async with one.transaction() as connection:
            await one.outbox.publish_in(connection, [a_message(f"a{n}", key="a") for n in (1, 2)])
            for store in (one, other):
                await pass_by(store, 2)
        hand = await take(other, 1)
        assert await take(one) == []  # a2 is behind now, below the marks of both
        assert await one.outbox.delivered(hand) == 1
        await publish(other, "a3")
        assert names(await take(other)) == ["a2", "a3"]


async def test_a_replayed_message_is_taken_before_later_ones_of_its_key(postgres: Postgres) -> None:  # E44
    async with stores(postgres, 2) as [one, other]:
        await publish(one, "a1")
        await drain(one)
        number = (await of(one, "a1")).number
        await pass_by(one, number)
        await other.outbox.replay(TOPIC, number, number, 1)
        await publish(one, "a2")
        assert names(await take(one)) == ["a1", "a2"]


async def test_a_message_that_is_away_until_before_the_mark_comes_back(postgres: Postgres) -> None:  # E44
    """As after a clock that was set back."""
    async with stores(postgres, 2) as [one, slow]:
        await slow.shift_clock(timedelta(hours=-1))
        await publish(one, "0")
        await drain(one)
        await pass_by(one, 1)
        await publish(one, "a1")
        assert names(await take(slow)) == ["a1"]
        assert await one.outbox.next_due([TOPIC]) == timedelta()
        assert names(await take(one)) == ["a1"]


async def test_a_mark_is_dropped_with_the_server_it_was_made_by(postgres: Postgres) -> None:  # E44 E51
    async with stores(postgres, 1) as [store]:
        await pass_by(store, 0)
        with psycopg.connect(store.url) as person:
            person.execute(END_OURS)
        assert (
            await store.outbox.next_due([TOPIC]) is None
        )  # on a new connection, which may lead to another server
        assert store.outbox.marks.of([TOPIC]) == NO_MARK
        await publish(store, "1")
        assert names(await take(store)) == ["1"]


@pytest.mark.parametrize("seed", range(2))
async def test_no_message_is_ever_below_what_a_mark_says(
    postgres: Postgres, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # E44
    """However old the mark is, and whatever two relays, callers that commit late and people have done since."""
    monkeypatch.setattr(outbox_marks, "TAKES", 2)
    chance, hands, marks = Random(seed), list[Taken](), list[Mark]()
    async with stores(postgres, 2) as two, AsyncExitStack() as open_ones:
        watch = open_ones.enter_context(psycopg.connect(two[0].url, autocommit=True))
        callers: list[AsyncExitStack] = []

        async def begin() -> None:
            caller = await open_ones.enter_async_context(AsyncExitStack())
            connection = await caller.enter_async_context(two[0].transaction())
            await two[0].outbox.publish_in(connection, [a_message(key=chance.choice("abc"))])
            callers.append(caller)

        async def commit() -> None:
            if callers:
                await callers.pop(chance.randrange(len(callers))).aclose()

        async def send() -> None:
            await two[0].outbox.publish(
                [a_message(key=chance.choice(["a", "b", "c", None])) for _ in range(3)]
            )

        async def hold() -> None:
            hands.extend(await take(chance.choice(two), chance.randint(1, 4)))

        async def deliver() -> None:
            await chance.choice(two).outbox.delivered([hands.pop() for _ in hands[:3]])

        async def fail() -> None:
            given = [hands.pop(0) for _ in hands[:2]]
            await chance.choice(two).outbox.put_off(put_off(*given, seconds=chance.choice([0, 5, None])))

        async def replay() -> None:
            await two[1].outbox.replay(TOPIC, 0, chance.randint(1, 50), 3)

        steps: list[Callable[[], Awaitable[None]]] = [begin, commit, send, hold, hold, deliver, deliver, fail]
        for step in range(120):
            await chance.choice([*steps, replay] if step % 5 == 0 else steps)()
            if len(callers) > 3:
                await commit()
            for store in two:
                mark = store.outbox.marks.of([TOPIC])
                if mark.seen is not None and mark not in marks:
                    marks.append(mark)
            assert below(watch, marks) == []
        assert len(marks) > 10


BELOW = """
SELECT o.number, o.line FROM holdfast.outbox o
 WHERE o.line < 3 AND o.number < holdfast.outbox_from(ARRAY[%(topic)s], o.line, (%(lowest)s::bigint[])[o.line + 1], %(seen)s)
    OR o.not_before < holdfast.outbox_due_from(ARRAY[%(topic)s], %(due)s, %(seen)s)"""


def below(watch: psycopg.Connection[Any], marks: list[Mark]) -> list[object]:
    """The messages that a relay would not see with one of these marks: the first and the last few."""
    return [
        (mark, found)
        for mark in (*marks[:2], *marks[2:][-4:])
        for found in watch.execute(BELOW, {"topic": TOPIC, **mark._asdict()}).fetchall()
    ]

"""Publish: in the caller's own transaction with anything else, from any library; and what people do about messages."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import asyncpg
import msgspec
import psycopg
import pytest

from devservices.proxy import Proxy
from holdfast import Conflict, Holdfast, StoreError, StoreUnavailable, UsageError, current_job
from holdfast.errors import UnknownMessage
from holdfast.outbox.model import KEEP_PUBLISHED, TAKEN_FOR, Message, MessageState
from holdfast.outbox.port import PutOff
from tests.apps import Database, new_app, work
from tests.integration import callers
from tests.integration.callers import ASYNC, NOTE, SYNC
from tests.integration.test_transactional_enqueue import _params

pytestmark = pytest.mark.anyio
TOPIC = "orders"


class Shop:
    """A user's app, its database, and the library it talks through."""

    def __init__(self, request: pytest.FixtureRequest, table: dict[str, Any]) -> None:
        store, self.open = table[request.param]
        self.db = Database(request.getfixturevalue(f"{store}_url"))
        self.db.prepare()
        self.app = new_app(self.db.url)

    @property
    def weaken(self) -> str:
        return "SET synchronous_commit = off" if self.db.is_postgres else "PRAGMA synchronous = NORMAL"


@pytest.fixture(params=_params(SYNC))
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request, SYNC)


@pytest.fixture(params=_params(ASYNC))
def async_shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request, ASYNC)


# -- in the caller's transaction ----------------------------------------------------------------------------------------
def test_a_message_is_there_with_the_callers_row_or_not_at_all(shop: Shop) -> None:  # E44
    with shop.open(shop.db) as caller:
        shop.app.outbox.publish_sync(TOPIC, {"order": 1}, connection=caller.connection)
        caller.execute(NOTE)
        caller.rollback()
    assert (shop.db.notes, shop.db.count("outbox")) == ([], 0)
    with shop.open(shop.db) as caller:
        caller.execute(NOTE)
        with pytest.raises(UsageError, match="characters"):
            shop.app.outbox.publish_sync("", 1, connection=caller.connection)
        shop.app.outbox.publish_sync(TOPIC, {"order": 2}, key="ann", connection=caller.connection, id="two")
        shop.app.outbox.publish_sync(TOPIC, b"\0\xff", connection=caller.connection, id="three")
        shop.app.outbox.publish_sync(TOPIC, "again", connection=caller.connection, id="two")
        assert shop.db.count("outbox") == 0
        caller.commit()
    assert (shop.db.notes, shop.db.count("outbox")) == (["mine"], 2)
    two, three = asyncio.run(listed(shop.app))
    assert (two.id, two.key, two.body, two.topic) == ("two", "ann", b'{"order":2}', TOPIC)
    assert (three.id, three.key, three.body) == ("three", None, b"\0\xff")


def test_app_sync_publishes_in_the_thread_of_the_caller(shop: Shop) -> None:  # E44
    with shop.open(shop.db) as caller:
        threads: list[int] = []
        shop.app.runtime.current_trace = lambda: threads.append(threading.get_ident()) or None  # type: ignore[func-returns-value]
        shop.app.sync.outbox.publish(TOPIC, {"order": 1}, connection=caller.connection)
        caller.execute(NOTE)
        caller.commit()
    assert (shop.db.notes, shop.db.count("outbox")) == (["mine"], 1)
    assert threads == [threading.get_ident()]  # many connections belong to one thread
    shop.app.runtime.close_sync()


def test_a_connection_that_commits_without_the_disk_cannot_publish(shop: Shop) -> None:  # E44
    with shop.open(shop.db) as caller:
        # SQLite changes the setting only outside of a transaction, and Django is in one already.
        began = not shop.db.is_postgres and shop.open is callers.by_django
        for sql in ("COMMIT", shop.weaken, "BEGIN") if began else (shop.weaken,):
            caller.execute(sql)
        with pytest.raises(UsageError, match="without waiting for the disk") as refused:
            shop.app.outbox.publish_sync(TOPIC, 1, connection=caller.connection)
        assert "\n" not in str(refused.value)
        caller.execute(NOTE)  # the transaction is as good as before
        caller.commit()
    assert (shop.db.notes, shop.db.count("outbox")) == (["mine"], 0)


async def test_an_async_transaction_has_the_message_or_not(async_shop: Shop) -> None:  # E44
    shop = async_shop
    async with shop.app:
        async with shop.open(shop.db) as caller:
            await shop.app.outbox.publish(TOPIC, 1, connection=caller.connection)
            await caller.execute(NOTE)
            await caller.rollback()
        assert (shop.db.notes, shop.db.count("outbox")) == ([], 0)
        async with shop.open(shop.db) as caller:
            await caller.execute(NOTE)
            for payload in (1, b"two"):
                await shop.app.outbox.publish(TOPIC, payload, key="ann", connection=caller.connection)
            await caller.commit()
        assert shop.db.notes == ["mine"]
        assert [message.body for message in await shop.app.outbox.list()] == [b"1", b"two"]
        async with shop.open(shop.db) as caller:
            await caller.execute(shop.weaken)
            with pytest.raises(UsageError, match="without waiting for the disk"):
                await shop.app.outbox.publish(TOPIC, 1, connection=caller.connection)


async def listed(app: Holdfast) -> list[Message]:
    async with app:
        return await app.outbox.list()


async def test_the_end_of_a_job_and_its_message_commit_together(
    db: Database, app: Holdfast
) -> None:  # E44 E49
    @app.task(retry=1)
    async def pay(order: int) -> None:
        async with current_job().transaction() as connection:
            await app.outbox.publish("paid", {"order": order}, connection=connection)
            if order < 0:
                raise ValueError("no such order")

    async with app:
        for order in (-1, 1):
            await pay.enqueue(order)
        await work(app)
        assert [message.body for message in await app.outbox.list(topic="paid")] == [b'{"order":1}']


async def test_a_commit_of_the_callers_wakes_who_waits(postgres_url: str) -> None:  # E44
    db = Database(postgres_url)
    app = new_app(db.url)
    async with app, asyncio.timeout(20):
        store = (await app.runtime.engine()).store
        notifier = store.outbox.notifier  # type: ignore[attr-defined]
        waiting = asyncio.create_task(store.outbox.wait([TOPIC], 60))
        while notifier._listener is None or notifier._connecting is not None:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        await waiting  # that it listens now has rung, too
        waiting = asyncio.create_task(store.outbox.wait([TOPIC], 60))
        async with callers.by_async_psycopg(db) as caller:
            await app.outbox.publish(TOPIC, 1, connection=caller.connection)
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            assert not done
            await caller.commit()
        await waiting


def test_a_refusal_by_postgresql_speaks_of_the_message(postgres_url: str) -> None:  # E44
    db = Database(postgres_url)
    db.prepare()
    app = new_app(db.url)
    with callers.by_psycopg(db) as caller, callers.by_psycopg(db) as other:
        other.execute("LOCK TABLE holdfast.outbox")
        caller.execute("SET LOCAL lock_timeout = '10ms'")
        with pytest.raises(StoreUnavailable, match=r"the message was not published: .*roll it back"):
            app.outbox.publish_sync(TOPIC, 1, connection=caller.connection)
        with pytest.raises(StoreError, match="the message cannot be published in this transaction"):
            app.outbox.publish_sync(TOPIC, 1, connection=caller.connection)
        caller.rollback()
        other.rollback()
        app.outbox.publish_sync(TOPIC, 1, connection=caller.connection)
        caller.commit()
    assert db.count("outbox") == 1


@pytest.mark.parametrize("thing", [object(), "a string", 7])
def test_something_that_is_no_connection_cannot_publish(
    db: Database, app: Holdfast, thing: object
) -> None:  # E44
    with pytest.raises(UsageError, match="on a builtins") as refused:
        app.outbox.publish_sync(TOPIC, 1, connection=thing)
    assert "\n" not in str(refused.value)
    assert db.count("outbox") == 0


async def test_in_memory_there_is_no_transaction_to_be_part_of() -> None:  # E44
    async with new_app("memory://") as app:
        with pytest.raises(UsageError, match="cannot publish inside your transaction"):
            await app.outbox.publish(TOPIC, 1, connection=object())
        app.outbox.publish_sync(TOPIC, 1)
        assert len(await app.outbox.list()) == 1


# -- by itself ----------------------------------------------------------------------------------------------------------
async def test_a_message_is_stored_when_publish_returns(db: Database, app: Holdfast) -> None:  # E44
    async with app:
        ids = await asyncio.gather(*(app.outbox.publish(TOPIC, n, key="k") for n in range(20)))
        assert db.count("outbox") == 20
        messages = await app.outbox.list(key="k")
        assert [message.id for message in messages] == ids
        assert [message.body for message in messages] == [str(n).encode() for n in range(20)]


def test_sync_code_publishes_without_a_connection(db: Database, app: Holdfast) -> None:  # E44
    message_id = app.outbox.publish_sync(TOPIC, {"order": 1}, key="k", headers={"x": "y"})
    assert app.sync.outbox.publish(TOPIC, 2, id=message_id) == message_id
    [message] = app.sync.outbox.list()
    assert (message.id, message.key, message.body) == (message_id, "k", b'{"order":1}')


async def test_a_message_says_what_its_content_is(app: Holdfast) -> None:  # E44
    class Order(msgspec.Struct):
        number: int

    async with app:
        for payload in (Order(7), b"raw", bytearray(b"raw"), None, "text"):
            await app.outbox.publish(TOPIC, payload)
        await app.outbox.publish(TOPIC, b"<a/>", headers={"Content-Type": "text/xml", "x": "1"})
        order, *raws, nothing, text, xml = await app.outbox.list()
    assert (order.body, order.headers) == (b'{"number":7}', {"content-type": "application/json"})
    assert {raw.body for raw in raws} == {b"raw"}
    assert raws[0].headers == {"content-type": "application/octet-stream"}
    assert (nothing.body, text.body) == (b"null", b'"text"')
    assert (xml.body, xml.headers) == (b"<a/>", {"Content-Type": "text/xml", "x": "1"})


async def test_a_message_carries_the_trace_of_its_caller(app: Holdfast) -> None:  # E44
    app.runtime.current_trace = lambda: "00-trace-span-01"
    async with app:
        await app.outbox.publish(TOPIC, 1)
        await app.outbox.publish(TOPIC, 1, headers={"traceparent": "mine"})
        theirs, mine = await app.outbox.list()
    assert theirs.headers["traceparent"] == "00-trace-span-01"
    assert mine.headers["traceparent"] == "mine"


BAD: list[dict[str, Any]] = [
    {"topic": ""},
    {"topic": "a\0b"},
    {"topic": "x" * 10_000_000},
    {"topic": "\ud800"},
    {"topic": "a\r\nb"},
    {"topic": 7},
    {"topic": None},
    {"key": ""},
    {"key": "\0"},
    {"key": "\udfff"},
    {"key": "k" * 10_000_000},
    {"key": 7},
    {"id": ""},
    {"id": "\0"},
    {"id": 7},
    {"headers": {"a\0": "b"}},
    {"headers": {"a": "b\r\nc: d"}},
    {"headers": {"a": 7}},
    {"headers": {7: "a"}},
    {"headers": {"a": "b" * 10_000_000}},
    {"headers": {str(n): "x" for n in range(1000)}},
    {"headers": "a: b"},
    {"payload": object()},
    {"payload": float("nan")},
    {"payload": "x" * 2_000_000},
    {"payload": b"x" * 10_000_000},
    {"payload": "\ud800"},
]


async def test_what_cannot_be_kept_is_refused_in_one_line(db: Database, app: Holdfast) -> None:  # E44
    async with app:
        for bad in BAD:
            given = {"topic": TOPIC, "payload": 1, **bad}
            with pytest.raises(UsageError) as refused:
                await app.outbox.publish(given.pop("topic"), given.pop("payload"), **given)
            assert "\n" not in str(refused.value)
            assert len(str(refused.value)) < 300
    assert db.count("outbox") == 0


# -- answers that are lost ----------------------------------------------------------------------------------------------
async def test_a_publish_whose_answer_was_eaten_is_one_message(
    postgres_url: str, postgres_proxy: Proxy
) -> None:  # E44
    app = new_app(postgres_proxy.route(postgres_url))
    async with app:
        await app.outbox.publish(TOPIC, 0)
        for n in range(3):
            loss = postgres_proxy.lose_answer("SELECT")
            await app.outbox.publish(TOPIC, n + 1)
            assert await asyncio.to_thread(loss.wait, 20)
        assert [message.body for message in await app.outbox.list()] == [b"0", b"1", b"2", b"3"]


async def test_a_relay_whose_answers_are_eaten_goes_on_with_what_it_took(
    postgres_url: str, postgres_proxy: Proxy
) -> None:  # E44
    app = new_app(postgres_proxy.route(postgres_url))
    async with app:
        store = (await app.runtime.engine()).store
        for n in range(3):
            await app.outbox.publish(TOPIC, n, key="k")
        await store.outbox.next_due([TOPIC])  # the relay's connection stands
        losses = [postgres_proxy.lose_answer("SELECT 3")]
        taken = await store.outbox.take({TOPIC: False}, 3, TAKEN_FOR)
        assert [one.message.body for one in taken] == [b"0", b"1", b"2"]
        losses.append(postgres_proxy.lose_answer("SELECT"))
        assert await store.outbox.delivered(taken[:1]) == 1
        losses.append(postgres_proxy.lose_answer("SELECT"))
        assert await store.outbox.put_off([PutOff(one, None, "no") for one in taken[1:]]) == 2
        assert all([await asyncio.to_thread(loss.wait, 20) for loss in losses])
        zero, one, two = await app.outbox.list()
        assert [zero.state, one.state, two.state] == ["published", "parked", "parked"]
        assert (one.tries, two.tries) == (1, 1)


# -- people -------------------------------------------------------------------------------------------------------------
async def deliver(app: Holdfast, limit: int = 50) -> list[bytes]:
    store = (await app.runtime.engine()).store
    taken = await store.outbox.take({TOPIC: False}, limit, KEEP_PUBLISHED)
    await store.outbox.delivered(taken)
    return [one.message.body for one in taken]


async def test_people_list_park_and_replay_messages(app: Holdfast) -> None:  # E44
    async with app:
        ids = [await app.outbox.publish(TOPIC, n) for n in range(3)]
        await app.outbox.park(ids[0], reason="it is wrong")
        parked = await app.outbox.get(ids[0])
        assert (parked.state, parked.error) == ("parked", "it is wrong")
        with pytest.raises(Conflict, match="is parked already"):
            await app.outbox.park(ids[0], reason="once more")
        with pytest.raises(UsageError, match="say why"):
            await app.outbox.park(ids[1], reason="")
        assert await deliver(app) == [b"1", b"2"]
        with pytest.raises(Conflict, match="is published already"):
            await app.outbox.park(ids[1], reason="too late")
        [lag] = await app.outbox.lags()
        assert lag == (TOPIC, 0, 1, None)
        assert [message.id for message in await app.outbox.list(state="published")] == ids[1:]
        assert await app.outbox.replay_many(TOPIC) == 3
        assert await app.outbox.replay_many(TOPIC) == 0
        with pytest.raises(Conflict, match="waits already"):
            await app.outbox.replay(ids[1])
        assert await deliver(app) == [b"0", b"1", b"2"]
        await app.outbox.replay(ids[1])
        assert await deliver(app) == [b"1"]


async def test_people_discard_what_is_parked(app: Holdfast) -> None:  # E44
    async with app:
        parked, waits = [await app.outbox.publish(TOPIC, n) for n in range(2)]
        await app.outbox.park(parked, reason="it is wrong")
        with pytest.raises(Conflict, match="is waiting; only a parked one can be discarded"):
            await app.outbox.discard(waits, reason="x")
        with pytest.raises(UsageError, match="say why it is discarded"):
            await app.outbox.discard(parked, reason="")
        await app.outbox.discard(parked, reason="nobody wants it", by="ann")
        with pytest.raises(UnknownMessage):
            await app.outbox.discard(parked, reason="x")
        [told] = [event for event in await app.events.list() if event.kind == "discarded"]
        assert (told.meta["message"], told.meta["by"], told.meta["reason"]) == (
            parked,
            "ann",
            "nobody wants it",
        )
        assert await deliver(app) == [b"1"]


async def test_a_replay_of_many_goes_in_batches(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E44
    monkeypatch.setattr("holdfast.outbox.verbs._BATCH", 2)
    async with app:
        for n in range(5):
            await app.outbox.publish(TOPIC, n)
        numbers = [message.number for message in await app.outbox.list()]
        await deliver(app)
        assert await app.outbox.replay_many(TOPIC, first=numbers[1], last=numbers[3]) == 3
        assert await deliver(app) == [b"1", b"2", b"3"]
        assert await app.outbox.replay_many(TOPIC, last=numbers[0]) == 1
        assert await app.outbox.replay_many("nothing") == 0


@pytest.mark.parametrize("name", ["", "\0", "\ud800", "x" * 100_000, "' OR 1=1 --"])
async def test_made_up_names_find_nothing(app: Holdfast, name: str) -> None:  # E44
    async with app:
        await app.outbox.publish(TOPIC, 1)
        for move in (
            app.outbox.get(name),
            app.outbox.replay(name),
            app.outbox.park(name, reason="x"),
            app.outbox.discard(name, reason="x"),
        ):
            with pytest.raises(UnknownMessage) as refused:
                await move
            assert "\n" not in str(refused.value)
        assert await app.outbox.replay_many(name) == 0
        if name:
            assert await app.outbox.list(topic=name) == await app.outbox.list(key=name) == []
        for wrong in ({"state": name or "?"}, {"limit": 0}, {"after": -1}, {"after": 2**63}):
            with pytest.raises(UsageError):
                await app.outbox.list(**wrong)


async def test_what_was_published_long_ago_is_tidied_away_by_the_duties(
    db: Database, app: Holdfast
) -> None:  # E44
    async with app:
        for n in range(3):
            await app.outbox.publish(TOPIC, n)
        await deliver(app, 2)
        if db.is_postgres:
            db.execute(
                "UPDATE holdfast.outbox_sent SET published_at = published_at - interval '8 days' WHERE body = '0'"
            )
        else:
            db.execute(
                "UPDATE holdfast_outbox SET settled_at = settled_at - 8 * 86400000000 WHERE body = CAST('0' AS BLOB)"
            )
        await work(app)
        async with asyncio.timeout(20):
            while len(await app.outbox.list()) == 3:
                await work(app)
        left = await app.outbox.list()
        assert [(message.body, message.state) for message in left] == [
            (b"1", MessageState.PUBLISHED),
            (b"2", MessageState.WAITING),
        ]


# -- PostgreSQL alone ---------------------------------------------------------------------------------------------------
async def test_what_is_published_while_its_twin_is_delivered_is_not_doubled(postgres_url: str) -> None:  # E44
    """Its first answer was eaten; when it is sent again, a relay is just moving it from one table to the other."""
    app = new_app(postgres_url)
    async with app:
        await app.outbox.publish(TOPIC, 1, id="one")
        store = (await app.runtime.engine()).store
        [taken] = await store.outbox.take({TOPIC: False}, 1, KEEP_PUBLISHED)
        relay = await asyncpg.connect(postgres_url)
        moving = relay.transaction()
        await moving.start()
        sql = "SELECT holdfast.messages_delivered(ARRAY[$1::bigint], ARRAY[$2::bigint])"
        assert await relay.fetchval(sql, taken.message.number, taken.epoch) == 1
        again = asyncio.create_task(app.outbox.publish(TOPIC, 1, id="one"))
        await asyncio.wait([again], timeout=0.3)
        assert not again.done()  # it waits to see what becomes of the one it found
        await moving.commit()
        await again
        await relay.close()
        assert [message.state for message in await app.outbox.list()] == ["published"]


def test_an_older_schema_is_named_and_the_transaction_is_left_alone(postgres_url: str) -> None:  # E44
    db = Database(postgres_url)
    db.prepare()
    db.execute("ALTER TABLE holdfast.outbox RENAME TO outbox_gone")
    app = new_app(db.url)
    with psycopg.connect(db.url) as connection:
        with pytest.raises(StoreError, match="run `holdfast migrate`"):
            app.outbox.publish_sync(TOPIC, 1, connection=connection)
        connection.execute("SELECT 1")


async def test_of_two_relays_the_second_sees_what_the_first_has_taken(postgres_url: str) -> None:  # E44
    app = new_app(postgres_url)
    async with app:
        for n in range(3):
            await app.outbox.publish(TOPIC, n, key="k")
        store = (await app.runtime.engine()).store
        first = await asyncpg.connect(postgres_url)
        taking = first.transaction()
        await taking.start()
        sql = "SELECT body FROM holdfast.take_messages(ARRAY[$1], ARRAY[false], 1, '1 min', 7, false)"
        assert await first.fetchval(sql, TOPIC) == b"0"
        second = asyncio.create_task(store.outbox.take({TOPIC: False}, 50, TAKEN_FOR))
        await asyncio.wait([second], timeout=0.3)
        await app.outbox.publish(TOPIC, 3, key="k")  # nobody who publishes waits for them
        assert not second.done()
        await taking.commit()
        await first.close()
        assert await second == []

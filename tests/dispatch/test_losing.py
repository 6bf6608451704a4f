"""A broker that loses everything, or is away: no job is lost with it, and nobody gets an error."""

from __future__ import annotations

import asyncio

import pytest

from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast import Holdfast, UsageError
from holdfast.engine.tables import bookmarks
from tests.apps import new_app, until, working
from tests.dispatch.ledger import Ledger, empty

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("hasty")]


# -- a broker that loses everything ---------------------------------------------------------------------------------------
@pytest.mark.usefixtures("broker_only")
async def test_what_the_broker_lost_is_offered_again(
    url: str, server: RedisServer | RabbitMq
) -> None:  # E45 S6
    book = Ledger(url, server.url(), poll="20ms", concurrency=1)
    async with book.app as app:
        await book.note.enqueue_many([{"number": number} for number in range(100)])
        await book.note.options(delay="700ms").enqueue_many([{"number": n} for n in range(100, 110)])
        async with working(app):
            await until(lambda: _some(book.ran, 20))
            await empty(server, app)
            await book.all_ran(110)


async def _some(ran: list[int], wanted: int) -> bool:
    return len(ran) >= wanted


@pytest.mark.usefixtures("store_looked_at")
async def test_without_anybody_who_offers_them_again_they_are_found_in_the_store(
    url: str, server: RedisServer | RabbitMq
) -> None:  # E45
    book = Ledger(url, server.url(), poll="20ms")
    async with book.app as app:
        await book.note.enqueue_many([{"number": number} for number in range(50)])
        await empty(server, app)
        async with working(app, maintenance=False):
            await book.all_ran(50)


@pytest.mark.usefixtures("broker_only")
async def test_another_takes_the_duty_over(url: str, own_redis: RedisServer) -> None:  # E45
    book = Ledger(url, own_redis.url(), poll="10s")
    async with book.app as app:
        store = (await app.runtime.engine()).store
        until_ms = int((await store.now()).timestamp() * 1000) + 400  # of one that was killed
        await bookmarks.move(store, "dispatch.leading", before=None, to=until_ms)
        await store.enqueue([*book.note.options()._jobs([{"number": 0}])])  # nobody offers it on the way
        async with working(app):
            await book.all_ran(1)


# -- a broker that is away ------------------------------------------------------------------------------------------------
async def test_while_the_broker_is_away_jobs_are_claimed_from_the_store(
    url: str, server: RedisServer | RabbitMq, told: list[tuple[str, str]]
) -> None:  # E45 S6
    # Cut off, not killed: RabbitMQ takes ten seconds to start. `make torture` kills it, with hints in it.
    with Proxy(server.host, server.port, postgres=False) as way:
        book = Ledger(url, way.route(server.url()), poll="20ms")
        async with book.app as app, working(app):
            await book.note.enqueue(0)
            await book.all_ran(1)
            way.refuse = True
            await asyncio.to_thread(way.reset)
            await book.note.enqueue_many([{"number": number} for number in range(1, 40)])
            await book.all_ran(40)
            assert told == [("WARNING", "broker.unavailable")]
            way.refuse = False
            await until(lambda: _is_back(app))
            await book.note.enqueue_many([{"number": number} for number in range(40, 60)])
            await book.all_ran(60)
    # Once for each time it was away: on a busy machine it may be so for a moment more, and at the end, too.
    assert told[:2] == [("WARNING", "broker.unavailable"), ("INFO", "broker.recovered")]
    assert told == (told[:2] * len(told))[: len(told)]


async def _is_back(app: Holdfast) -> bool:
    broker = (await app.runtime.engine()).broker
    return broker is not None and broker.is_available


async def test_one_that_never_was_there_keeps_nobody_from_working(url: str) -> None:  # E45
    book = Ledger(url, "redis://127.0.0.1:1/0")
    async with book.app as app:
        async with asyncio.timeout(20):
            for number in range(20):
                await book.note.enqueue(number)
            async with working(app):
                await book.all_ran(20)


async def test_a_silent_broker_holds_nobody_up_for_long(
    url: str, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # E45
    monkeypatch.setattr("holdfast.dispatch.redis.ANSWER_WITHIN", 0.2)
    with Proxy(own_redis.host, own_redis.port, postgres=False) as proxy:
        book = Ledger(url, proxy.route(own_redis.url()), poll="20ms")
        async with book.app as app, working(app):
            await book.note.enqueue(0)
            await book.all_ran(1)
            proxy.black_hole = True
            await book.note.enqueue_many([{"number": number} for number in range(1, 20)])
            await book.all_ran(20)
            proxy.black_hole = False


async def test_an_address_that_cannot_be_read_is_one_clear_line(url: str) -> None:  # E45
    with pytest.raises(UsageError) as refused:
        await new_app(url, dispatch="redis://:s3cret@host:port/0").runtime.engine()
    assert (
        str(refused.value)
        == "dispatch: the address after redis:// cannot be read; check host and port, and write %40 for an @ in a password"
    )

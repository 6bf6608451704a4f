"""Workers that get their jobs from a real broker: each runs once, whatever is wrong with what the broker says."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import pytest
from redis.asyncio import Redis

from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast.dispatch.rabbitmq import RabbitDispatch
from holdfast.engine.dispatch import Dispatch, DispatchHint
from holdfast.engine.dispatcher import Dispatcher, name_of
from holdfast.jobs.job import JobId, Lane
from holdfast.jobs.moves import State
from tests.apps import new_app, until, working
from tests.dispatch.ledger import Ledger

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("hasty")]


# -- the way through ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("broker_only")
async def test_jobs_come_through_the_broker(url: str, server: RedisServer | RabbitMq) -> None:  # E45 S6
    book = Ledger(url, server.url(), poll="10s")
    async with book.app as app, working(app):
        for number in range(3):
            await book.note.enqueue(number)
        await book.note.enqueue_many([{"number": number} for number in range(3, 50)])
        await book.all_ran(50)


@pytest.mark.usefixtures("broker_only", "compared_once")
async def test_what_is_due_later_and_what_is_tried_again_come_through_it_too(
    url: str, server: RedisServer | RabbitMq
) -> None:  # E45 S6
    book = Ledger(url, server.url(), poll="10s")
    async with book.app as app, working(app):
        await book.note.options(delay="400ms").enqueue(0)
        await book.note.enqueue(1, fails=True)
        await book.ended(2)
        assert sorted(book.ran) == [0, 1, 1]


@pytest.mark.usefixtures("broker_only")
async def test_what_was_enqueued_elsewhere_is_offered_by_the_duty(
    url: str, server: RedisServer | RabbitMq
) -> None:  # E45
    book, elsewhere = Ledger(url, server.url(), poll="10s"), new_app(url)
    elsewhere.task(name="note")(_note)
    async with book.app as app, elsewhere, working(app):
        await elsewhere.tasks["note"].enqueue(0)
        await book.all_ran(1)


async def test_a_hint_is_given_up_when_its_job_is_claimed_and_not_when_it_ends(
    url: str, own_rabbitmq: RabbitMq
) -> None:  # E45
    began, go_on = asyncio.Event(), asyncio.Event()
    app = new_app(url, dispatch=own_rabbitmq.url())

    @app.task
    async def slow() -> None:
        began.set()
        await go_on.wait()

    async with app, working(app):
        engine = await app.runtime.engine()
        await slow.enqueue()
        async with asyncio.timeout(20):
            await began.wait()
        assert engine.broker is not None
        dispatch = engine.broker._dispatch
        assert isinstance(dispatch, RabbitDispatch)
        await until(
            lambda: _settled(dispatch)
        )  # a broker that limits how long that takes has nothing to complain of
        go_on.set()


async def _settled(dispatch: RabbitDispatch) -> bool:
    return not dispatch._unsettled


async def _note(number: int) -> int:
    raise AssertionError("another process runs it")


@pytest.mark.usefixtures("broker_only", "compared_once")
async def test_a_pause_keeps_hints_at_the_broker(url: str, own_redis: RedisServer) -> None:  # E45 E27
    book = Ledger(url, own_redis.url(), poll="20ms")
    async with book.app as app:
        await app.queues.pause("default", reason="maintenance")
        async with working(app):
            await book.note.enqueue(0)
            await asyncio.sleep(0.3)
            assert book.ran == []
            await app.queues.resume("default")
            await book.all_ran(1)


# -- people ---------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("broker_only")
async def test_a_manual_retry_of_a_delayed_job_runs_at_once_and_once(
    url: str, server: RedisServer | RabbitMq
) -> None:  # S2 S6
    book = Ledger(url, server.url(), poll="10s")
    async with book.app as app, working(app):
        job = await book.note.options(delay="1h").enqueue(0)
        await app.jobs.retry(job.id)
        await book.all_ran(1)


async def test_a_manual_retry_with_the_highest_priority_overtakes_all_hints(
    url: str, own_redis: RedisServer
) -> None:  # E76 S6
    book = Ledger(url, own_redis.url())
    async with book.app as app:
        engine, broker = await app.runtime.engine(), await book.broker()
        waiting = await book.note.options(delay="1h").enqueue(0)
        ended = await book.note.enqueue(1)
        await app.jobs.cancel(ended.id)
        crowd = [{"number": number} for number in range(2, 2002)]
        await book.note.options(priority="high").enqueue_many(crowd)
        await until(lambda: _in_line(broker, book.note.lane, 2000))
        for handle in (waiting, ended):
            await app.jobs.retry(handle.id, priority=1000)
        await until(lambda: _in_line(broker, book.note.lane, 2002))
        hints = await broker.ask(lambda dispatch: dispatch.take([book.note.lane], 2))
        assert hints is not None
        assert set(hints) == {DispatchHint(JobId(waiting.id), 1), DispatchHint(JobId(ended.id), 2)}
        session = await engine.store.open_session("worker", app.runtime.settings.lease)
        claimed = await engine.store.dispatch.claim_jobs(session, hints)
        assert {one.lease.job_id: one.priority for one in claimed} == {waiting.id: 1000, ended.id: 1000}


async def _in_line(broker: Dispatcher, lane: Lane, wanted: int) -> bool:
    sizes = await broker.ask(lambda dispatch: dispatch.sizes([lane]))
    return sizes is not None and sizes.ready[lane] == wanted


async def test_a_cancelled_delayed_job_leaves_the_broker(url: str, own_redis: RedisServer) -> None:  # S6
    book = Ledger(url, own_redis.url())
    async with book.app as app:
        broker = await book.broker()
        job = await book.note.options(delay="1h").enqueue(0)
        await until(lambda: _later(broker, 1))
        await app.jobs.cancel(job.id)
        await until(lambda: _later(broker, 0))


async def _later(broker: Dispatcher, wanted: int) -> bool:
    sizes = await broker.ask(lambda dispatch: dispatch.sizes([]))
    return sizes is not None and sizes.later == wanted


async def test_of_cancel_and_take_the_first_in_the_store_wins(
    url: str, server: RedisServer | RabbitMq
) -> None:  # S2
    book = Ledger(url, server.url())
    async with book.app as app:
        engine, broker = await app.runtime.engine(), await book.broker()
        session = await engine.store.open_session("worker", app.runtime.settings.lease)
        first, second = await book.note.enqueue(0), await book.note.enqueue(1)
        entries = await engine.store.dispatch.waiting([JobId(first.id), JobId(second.id)])
        await broker.ask(lambda dispatch: dispatch.offer(entries))
        hints = await broker.ask(lambda dispatch: dispatch.take([entries[0].lane], 2))
        assert set(hints or ()) >= {DispatchHint(JobId(first.id), 1)}
        await engine.store.cancel(JobId(first.id), "ann", "")  # taken, then cancelled, then claimed
        [claimed] = await engine.store.dispatch.claim_jobs(session, hints or ())
        assert claimed.lease.job_id == second.id
        await app.jobs.cancel(second.id)  # taken, claimed, then cancelled: the attempt has lost its lease
        assert await engine.store.held(session) == set()
        assert [(await app.jobs.get(job.id)).state for job in (first, second)] == [State.CANCELLED] * 2


# -- hints that are wrong -------------------------------------------------------------------------------------------------
async def test_hints_that_come_twice_run_once(url: str, server: RedisServer | RabbitMq) -> None:  # E45
    book = Ledger(url, server.url())
    async with book.app as app:
        engine, broker = await app.runtime.engine(), await book.broker()
        await book.note.enqueue_many([{"number": number} for number in range(30)])
        entries = await engine.store.dispatch.all_waiting(after=None, limit=100)
        strange = [entry._replace(job_id=JobId(entry.job_id[:-12] + "0" * 12)) for entry in entries[:3]]
        old = [entry._replace(generation=7) for entry in entries[3:6]] if not broker.repeats else []

        async def again(dispatch: Dispatch) -> None:
            for _ in range(2):
                await dispatch.offer([*entries, *strange, *old])

        await broker.ask(again)
        async with working(app):
            await book.all_ran(30)
            await broker.ask(lambda dispatch: dispatch.offer(entries))  # of jobs that have ended
            await book.note.enqueue(30)
            await book.all_ran(31)


async def test_what_others_write_there_does_nothing(url: str, server: RedisServer | RabbitMq) -> None:  # E45
    book = Ledger(url, server.url())
    async with book.app as app:
        name, lane = await name_of((await app.runtime.engine()).store, app.runtime.ids), book.note.lane
        await _scribble(server, name, lane)
        async with working(app):
            await book.note.enqueue(0)
            await book.all_ran(1)


async def _scribble(server: RedisServer | RabbitMq, name: str, lane: Any) -> None:
    from holdfast.dispatch.rabbitmq import lane_name
    from holdfast.dispatch.redis import lane_text

    if isinstance(server, RedisServer):
        space = f"holdfast:{{{name}}}:"
        client: Any = Redis.from_url(server.url())
        await client.hset(
            f"{space}what", mapping={"a": "what?", b"\xff\x00": f"1:0:{lane_text(lane)}", "b": "x:y"}
        )
        await client.zadd(f"{space}line:{lane_text(lane)}", {"a": -9, b"\xff\x00": -8, "nobody": -7})
        await client.zadd(f"{space}later", {"b": 1, "a": 2})
        await client.aclose()
        return
    async with await aio_pika.connect(server.url()) as connection:
        channel = await connection.channel()
        queue = f"holdfast.dispatch.{name}.{lane_name(lane)}"
        await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})
        for body in (b"", b"\xff" * 200, b"no:hint", b"0190a0b0-1111-7abc-8def-000000000001:-3"):
            await channel.default_exchange.publish(aio_pika.Message(body), queue)

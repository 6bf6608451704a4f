"""What is special about each kind of target."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aio_pika
import pytest
from redis.asyncio import Redis

from devservices.nats import NatsServer
from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast import Holdfast, UsageError
from holdfast.outbox.model import Delivered, Delivery, Undelivered
from holdfast.values.urls import shown
from tests.endpoint import Message as Posted
from tests.outbox.transports.benches import (
    SECRET,
    Bench,
    RabbitBench,
    WebBench,
    a_bench,
    a_message,
    transport_of,
)


@asynccontextmanager
async def delivering(bench: Bench, **options: Any) -> AsyncIterator[Any]:
    transport = transport_of(bench, **options)
    await transport.open()
    try:
        yield transport.deliver
    finally:
        await transport.close()


def failed(answer: Delivery) -> Undelivered:
    assert isinstance(answer, Undelivered)
    return answer


# -- RabbitMQ -----------------------------------------------------------------------------------------------------------
async def test_what_no_queue_is_bound_for_is_returned_and_is_no_delivery(rabbitmq: RabbitMq) -> None:  # E44
    async with a_bench("rabbitmq", {"rabbitmq": rabbitmq}) as bench, delivering(bench) as deliver:
        first, second = a_message(bench.topic), a_message(bench.topic)
        assert await deliver([first]) == [Delivered()]
        async with await aio_pika.connect(rabbitmq.url()) as connection:
            channel = await connection.channel()
            queue = await channel.get_queue(bench.options["queue"])
            await queue.unbind(bench.options["exchange"], bench.topic)
        answer = failed((await deliver([second]))[0])
        assert answer.lasting
        assert "unroutable" in answer.error
        assert bench.topic in answer.error
        assert [one.id for one in await bench.arrived()] == [first.id]


async def test_a_missing_exchange_is_told_and_harms_no_other_topic(rabbitmq: RabbitMq) -> None:  # E44
    async with (
        a_bench("rabbitmq", {"rabbitmq": rabbitmq}) as bench,
        delivering(bench, exchange="nobody.made.it", declare=False) as deliver,
    ):
        answers = [failed(one) for one in await deliver([a_message(bench.topic), a_message(bench.topic)])]
        assert all("no such exchange" in one.error for one in answers)
        assert all(not one.lasting and not one.away for one in answers)
        again = failed((await deliver([a_message(bench.topic)]))[0])  # on a new channel
        assert "no such exchange" in again.error


async def test_a_full_queue_refuses_and_the_message_is_tried_again(rabbitmq: RabbitMq) -> None:  # E44
    async with (
        a_bench("rabbitmq", {"rabbitmq": rabbitmq}) as bench,
        delivering(bench, queue_arguments={"x-max-length": 2}) as deliver,
    ):
        answers = [(await deliver([a_message(bench.topic)]))[0] for _ in range(12)]
        assert Delivered() in answers
        refused = failed(answers[-1])
        assert "nack" in refused.error
        assert not refused.lasting
        kept = await bench.arrived()
        assert len(kept) == answers.count(Delivered())


async def test_the_declared_queue_is_a_quorum_queue_whose_dead_letters_are_kept(rabbitmq: RabbitMq) -> None:
    async with a_bench("rabbitmq", {"rabbitmq": rabbitmq}) as bench, delivering(bench) as deliver:
        message = a_message(bench.topic, key="k1")
        assert await deliver([message]) == [Delivered()]
        name = bench.options["queue"]
        async with await aio_pika.connect(rabbitmq.url()) as connection:
            channel = await connection.channel()
            queue = await channel.get_queue(name)
            found = await queue.get()
            assert found is not None
            assert found.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
            assert found.headers["holdfast-key"] == "k1"
            await found.reject(requeue=False)
            dead = await channel.get_queue(f"{name}.dead")
            letter = None
            async with dead.iterator(timeout=10) as letters:
                async for letter in letters:
                    await letter.ack()
                    break
        assert letter is not None
        assert letter.message_id == message.id
        listed = rabbitmq.ctl("list_queues", "name", "type", "arguments").splitlines()
        [kept] = [line for line in listed if line.startswith(f"{name}.dead\t")]
        assert "\tquorum\t" in kept
        assert '"x-delivery-limit",1000000000' in kept  # or RabbitMQ 4 drops what was looked at 20 times


async def test_a_header_that_amqp_has_no_form_for_is_parked_alone(rabbitmq: RabbitMq) -> None:
    async with a_bench("rabbitmq", {"rabbitmq": rabbitmq}) as bench, delivering(bench) as deliver:
        evil = a_message(bench.topic, headers={"x" * 300: "1"})
        first, second = await deliver([evil, a_message(bench.topic)])
        assert failed(first).lasting
        assert second == Delivered()


# -- Redis --------------------------------------------------------------------------------------------------------------
async def test_a_key_that_is_no_stream_is_told(redis_server: RedisServer) -> None:
    async with a_bench("redis", {"redis": redis_server}) as bench, delivering(bench) as deliver:
        client: Any = Redis.from_url(redis_server.url())
        await client.set(bench.topic, "something else")
        await client.aclose()
        answer = failed((await deliver([a_message(bench.topic)]))[0])
        assert "is not a stream" in answer.error
        assert not answer.away


async def test_a_full_redis_is_waited_for(redis_server: RedisServer) -> None:  # E44
    async with a_bench("redis", {"redis": redis_server}) as bench, delivering(bench) as deliver:
        client: Any = Redis.from_url(redis_server.url())
        await client.config_set("maxmemory", "1")
        try:
            answer = failed((await deliver([a_message(bench.topic)]))[0])
        finally:
            await client.config_set("maxmemory", "0")
            await client.aclose()
        assert answer.away
        assert "full" in answer.error
        assert await deliver([a_message(bench.topic)]) == [Delivered()]


# -- NATS ---------------------------------------------------------------------------------------------------------------
async def test_a_subject_that_no_stream_keeps_is_unroutable(nats_server: NatsServer) -> None:  # E44
    async with a_bench("nats", {"nats": nats_server}) as bench, delivering(bench, stream=None) as deliver:
        answer = failed((await deliver([a_message(bench.topic)]))[0])
        assert answer.lasting
        assert "unroutable" in answer.error


async def test_a_stream_may_drop_what_comes_twice(nats_server: NatsServer) -> None:
    async with a_bench("nats", {"nats": nats_server}) as bench, delivering(bench, dedupe=True) as deliver:
        message = a_message(bench.topic)
        assert await deliver([message]) == await deliver([message]) == [Delivered()]
        assert len(await bench.arrived()) == 1


# -- webhooks -----------------------------------------------------------------------------------------------------------
def answering(status: str) -> Any:
    def answer(message: Posted) -> str:
        return status

    return answer


@pytest.mark.parametrize(
    ("status", "lasting", "after"),
    [
        ("422 Unprocessable", True, None),
        ("410 Gone", True, None),
        ("500 Oops", False, None),
        ("404 Not Found", False, None),
        ("429 Slow\r\nRetry-After: 7", False, timedelta(seconds=7)),
        ("307 Elsewhere\r\nLocation: http://169.254.169.254/", False, None),
    ],
)
async def test_what_an_endpoint_answers_decides(status: str, lasting: bool, after: timedelta | None) -> None:
    async with a_bench("webhook", {}) as bench, delivering(bench) as deliver:
        assert isinstance(bench, WebBench)
        bench.endpoint.answer = answering(status)
        answer = failed((await deliver([a_message(bench.topic)]))[0])
        assert (answer.lasting, answer.after, answer.away) == (lasting, after, False)
        assert bench.password not in answer.error


async def test_a_post_is_signed_by_standard_webhooks() -> None:
    async with a_bench("webhook", {}) as bench, delivering(bench) as deliver:
        assert isinstance(bench, WebBench)
        message = a_message(bench.topic, b'{"a": 1}')
        assert await deliver([message]) == [Delivered()]
        # The verifier checks the time against the real clock, and so do we sign.
        [posted] = bench.endpoint.messages
        posted.verify(SECRET)
        assert posted.headers["webhook-id"] == message.id


# -- what is said about targets -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        ("ampq://u:hunter2@h/", {}, "'ampq' is not a kind of target; did you mean amqp?"),
        ("rabbit.local", {}, "is not an address"),
        ("amqp://u:hunter2@/", {}, "names no host"),
        ("amqp://u:hunter2@h:port/", {}, "cannot be read"),
        ("amqp://u:hunter2@h/", {"exchang": "x"}, "no option 'exchang'; did you mean exchange"),
        ("amqp://u:hunter2@h/", {"exchange": 5}, "Expected `str`, got `int`"),
        ("nats://u:hunter2@h/", {"subject": "a b"}, "is not a subject"),
        ("https://h/?t=hunter2", {"secret": "hunter2"}, "does not begin with whsec_"),
    ],
)
def test_a_misspelt_target_is_told_in_one_line(address: str, options: dict[str, Any], words: str) -> None:
    app = Holdfast("memory://")
    with pytest.raises(UsageError) as caught:
        app.topic("orders", to=address, **options)
    text = str(caught.value)
    assert words in text
    assert "hunter2" not in text
    assert "\n" not in text
    assert "orders" in text


def test_nothing_that_is_shown_of_a_topic_holds_its_password() -> None:
    app = Holdfast("memory://", broker="amqp://u:hunter2@h:5672/v?x=hunter2")
    topic = app.topic("orders")
    assert "hunter2" not in repr(topic) + repr(app.runtime.settings) + shown(topic.to)
    assert shown(topic.to) == "amqp://h:5672"
    assert RabbitBench.kind not in repr(topic)

"""The relay, a real broker, and what goes wrong between them (research: rows 22, 26, 27)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from redis.asyncio import Redis

from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast import Holdfast
from holdfast.outbox.model import Message
from holdfast.outbox.relay import route
from tests.e2e.faults.relay_app import QUEUE, TOPIC, make_app
from tests.e2e.faults.world import ROOT, eventually

pytestmark = [pytest.mark.slow, pytest.mark.service]
#: `basic.ack`, as the first bytes of its frame's payload.
ACK = "\x00\x3c\x00\x50"


@pytest.fixture(autouse=True)
def route_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app made here shortens the waits of all relays of this process: only until the end of its test."""
    for name in ("TAKEN_FOR", "DELIVER_WITHIN"):
        monkeypatch.setattr(route, name, getattr(route, name))


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
async def broker(own_rabbitmq: RabbitMq) -> RabbitMq:
    """Running, with nothing left from the test before."""
    own_rabbitmq.start()
    await empty_queue(own_rabbitmq)
    return own_rabbitmq


async def empty_queue(broker: RabbitMq) -> None:
    """Make the topic's queue, or empty it."""
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        existed = True
        for name in (QUEUE, f"{QUEUE}.dead"):
            try:
                await (await channel.get_queue(name)).purge()
            except aio_pika.exceptions.ChannelNotFoundEntity:
                existed, channel = False, await connection.channel()
    if not existed:
        async with make_app("memory://", broker.url()) as app:
            await app.outbox.publish(TOPIC, "declares the queue")
            await app.outbox.run_relay(until_idle=True)
        await drained(broker)
        # RabbitMQ 3.10 writes down where a new quorum queue lives half a second after it was made. One that is killed
        # before that starts with a queue that never answers, whatever was confirmed.
        await asyncio.sleep(1)


@asynccontextmanager
async def relaying(app: Holdfast) -> AsyncIterator[None]:
    task = asyncio.create_task(app.outbox.run_relay())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def relay_process(url: str, broker: str, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "relay", "tests.e2e.faults.relay_app:app"],
            cwd=ROOT,
            env=os.environ | {"HOLDFAST_DATABASE_URL": url, "RELAY_BROKER": broker} | environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


async def drained(broker: RabbitMq) -> list[str]:
    """The ids in the queue, in order; it is empty afterwards."""
    found = []
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue(QUEUE)
        while (message := await queue.get(fail=False)) is not None:
            await message.ack()
            found.append(message.message_id or "")
    return found


async def all_published(app: Holdfast, seconds: float = 40) -> None:
    async def done() -> bool:
        return not await app.outbox.list(state="waiting", limit=1)

    await eventually(done, "everything to be published", seconds)


async def test_a_broker_that_is_killed_under_load_loses_nothing(broker: RabbitMq, url: str) -> None:  # E44 G2
    async with make_app(url, broker.url()) as app, relaying(app):
        ids = [await app.outbox.publish(TOPIC, {"n": n}, key=str(n % 20)) for n in range(300)]

        async def some() -> list[Message]:
            return await app.outbox.list(state="published", limit=1)

        await eventually(some, "the first to be published")
        await asyncio.to_thread(broker.kill)
        ids += [await app.outbox.publish(TOPIC, {"n": n}, key=str(n % 20)) for n in range(300, 400)]
        await asyncio.to_thread(broker.start)
        await all_published(app)
    arrived = await drained(broker)
    assert set(arrived) == set(ids)
    first_seen = {message_id: place for place, message_id in reversed(list(enumerate(arrived)))}
    for key in range(20):
        places = [first_seen[message_id] for message_id in ids[key::20]]
        assert places == sorted(places), "in order of its key, doubles aside"


async def test_after_three_quick_flaps_of_the_broker_the_relay_goes_on(
    broker: RabbitMq, url: str
) -> None:  # E44
    with Proxy(broker.host, broker.port, postgres=False) as proxy:
        async with make_app(url, proxy.route(broker.url())) as app, relaying(app):
            ids = [await app.outbox.publish(TOPIC, "before")]
            await all_published(app)
            flapping = asyncio.create_task(asyncio.to_thread(proxy.flap))
            while not flapping.done():
                ids.append(await app.outbox.publish(TOPIC, "meanwhile"))
                await asyncio.sleep(0.02)
            ids.append(await app.outbox.publish(TOPIC, "after"))
            await all_published(app)
    assert set(await drained(broker)) == set(ids)


async def test_a_memory_alarm_puts_off_and_does_not_hang(broker: RabbitMq, url: str) -> None:  # E44
    async with make_app(url, broker.url()) as app, relaying(app):
        before = await app.outbox.publish(TOPIC, "before")
        await all_published(app)
        await asyncio.to_thread(broker.ctl, "set_vm_memory_high_watermark", "absolute", "1000")
        try:
            ids = [await app.outbox.publish(TOPIC, {"n": n}) for n in range(120)]

            async def told() -> bool:
                waiting = await app.outbox.list(state="waiting", limit=200)
                return any("alarm" in (one.error or "") for one in waiting)

            await eventually(told, "the alarm to be told of")
            assert all(one.tries == 0 for one in await app.outbox.list(state="waiting", limit=200))
        finally:
            await asyncio.to_thread(broker.ctl, "set_vm_memory_high_watermark", "absolute", "1GB")
        await all_published(app)
    assert set(await drained(broker)) == {before, *ids}


async def test_an_unroutable_message_is_parked_with_its_reason(broker: RabbitMq, url: str) -> None:  # E44
    async with make_app(url, broker.url()) as app, relaying(app):
        await app.outbox.publish(TOPIC, "first", key="k")
        await all_published(app)
        async with await aio_pika.connect(broker.url()) as connection:
            channel = await connection.channel()
            queue = await channel.get_queue(QUEUE)
            await queue.unbind("x.orders", TOPIC)
            lost = await app.outbox.publish(TOPIC, "nobody hears it", key="k")

            async def parked() -> list[Message]:
                return await app.outbox.list(state="parked")

            [message] = await eventually(parked, "the message to be parked")
            assert message.id == lost
            assert "unroutable" in message.error
            await queue.bind("x.orders", TOPIC)
        await app.outbox.replay(lost)
        await all_published(app)
    assert (await drained(broker))[-1] == lost


async def test_a_confirm_that_is_eaten_on_the_way_doubles_and_does_not_lose(  # E44
    broker: RabbitMq, url: str
) -> None:
    with Proxy(broker.host, broker.port, postgres=False) as proxy:
        async with make_app(url, proxy.route(broker.url())) as app, relaying(app):
            first = await app.outbox.publish(TOPIC, "first")
            await all_published(app)
            loss = proxy.lose_answer(ACK)
            second = await app.outbox.publish(TOPIC, "second")
            await all_published(app)
            assert loss.is_set()
            assert (await app.outbox.get(second)).tries == 0
    arrived = await drained(broker)
    assert arrived[0] == first
    assert set(arrived) == {first, second}
    assert arrived.count(second) >= 2  # more where the broker itself was slow to confirm


async def test_a_relay_that_is_killed_before_it_marks_leaves_its_messages_to_another(  # E44
    broker: RabbitMq, url: str, tmp_path: Path
) -> None:
    app = make_app(url, broker.url())
    async with app:
        ids = [await app.outbox.publish(TOPIC, {"n": n}, key="k") for n in range(3)]
        log = tmp_path / "first.log"
        with relay_process(url, broker.url(), log, RELAY_DIES="1") as mortal:
            await eventually(lambda: mortal.poll() is not None, "the relay to die")
            assert mortal.returncode == -9, log.read_text()
        assert len(await app.outbox.list(state="waiting")) == 3
        with relay_process(url, broker.url(), tmp_path / "second.log"):
            await all_published(app)
    arrived = await drained(broker)
    assert (arrived[:3], set(arrived)) == (ids, set(ids))
    assert min(Counter(arrived).values()) >= 2


async def test_two_relay_processes_one_of_which_is_killed_lose_nothing(  # E44
    broker: RabbitMq, url: str, tmp_path: Path
) -> None:
    async with make_app(url, broker.url()) as app:
        logs = [tmp_path / "1.log", tmp_path / "2.log"]
        with (
            relay_process(url, broker.url(), logs[0]) as first,
            relay_process(url, broker.url(), logs[1]),
        ):
            await eventually(lambda: all("relay.started" in log.read_text() for log in logs), "both to start")
            ids = [await app.outbox.publish(TOPIC, {"n": n}) for n in range(200)]
            first.kill()
            ids += [await app.outbox.publish(TOPIC, {"n": n}) for n in range(200, 300)]
            await all_published(app)
        secret = broker.password
        assert all(secret not in log.read_text() for log in logs)
    arrived = Counter(await drained(broker))
    assert set(arrived) == set(ids)
    assert sum(arrived.values()) - len(ids) <= 100  # no more than what the dead one had in hand


async def test_a_misspelt_broker_is_told_in_one_line_without_its_password(url: str, tmp_path: Path) -> None:
    log = tmp_path / "relay.log"
    with relay_process(url, "amqp://u:hunter2@no-such-host.invalid/", log) as relay:
        async with make_app(url, "amqp://u:hunter2@no-such-host.invalid/") as app:
            await app.outbox.publish(TOPIC, "first")
        await eventually(lambda: "relay.target_unavailable" in log.read_text(), "the relay to say so")
        relay.terminate()
        assert relay.wait(20) == 0
    [line] = [one for one in log.read_text().splitlines() if "relay.target_unavailable" in one]
    assert "no-such-host.invalid cannot be reached" in line
    assert "hunter2" not in log.read_text()
    assert "Traceback" not in log.read_text()


async def test_a_flushed_redis_is_filled_again_from_the_outbox(
    redis_server: RedisServer, url: str
) -> None:  # E44
    app = Holdfast(url)
    app.topic("flushed", to=redis_server.url())
    client: Any = Redis.from_url(redis_server.url())
    async with app, relaying(app):
        ids = [await app.outbox.publish("flushed", {"n": n}) for n in range(120)]
        await all_published(app)
        await client.flushall()
        assert await app.outbox.replay_many("flushed") == 120
        await all_published(app)
        entries = await client.xrange("flushed")
    await client.aclose()
    assert [fields[b"id"].decode() for _, fields in entries] == ids

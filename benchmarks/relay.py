"""`python -m benchmarks.relay [messages]`: compare the relay with a bare confirm loop, on a private RabbitMQ.

Prints the rate of a bare aio-pika loop with the same window, the relay's rate on the same queue type, their
ratio (the target is at least 0.6), and the time of a message from its commit to the queue in an idle system
(p50 of at most 20 ms).
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import aio_pika

from devservices import keeper
from devservices.postgres import Postgres
from devservices.rabbitmq import RabbitMq
from holdfast import Holdfast
from holdfast.outbox.model import BATCH

BODY = (
    b'{"submission": "0190a0b0-1111-7abc-8def-0123456789ab", "skill": "writing", "text": "'
    + b"x" * 400
    + b'"}'
)
ROUNDS = 3
IDLE = 100


async def bare(url: str, messages: int) -> float:
    """Publish *messages* messages without the relay, and return the messages a second.

    They are sent in windows, whose confirms are awaited, two windows at a time as the relay does.
    """
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.get_exchange("bench")

        async def publish_windows(number: int) -> None:
            for _ in range(number // BATCH):
                await asyncio.gather(
                    *(
                        exchange.publish(
                            aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT), "bench"
                        )
                        for _ in range(BATCH)
                    )
                )

        started = time.perf_counter()
        await asyncio.gather(publish_windows(messages // 2), publish_windows(messages // 2))
        return messages / (time.perf_counter() - started)


async def relayed(app: Holdfast, messages: int) -> float:
    """Deliver *messages* messages by the relay, and return the messages a second."""
    for _ in range(0, messages, 500):
        await asyncio.gather(*(app.outbox.publish("bench", BODY) for _ in range(500)))
    started = time.perf_counter()
    await app.outbox.run_relay(until_idle=True)
    return messages / (time.perf_counter() - started)


async def idle(app: Holdfast, url: str) -> list[float]:
    """Return the milliseconds of messages from the return of `publish`, after its commit, to a consumer."""
    arrived: asyncio.Queue[float] = asyncio.Queue()
    relay_task = asyncio.create_task(app.outbox.run_relay())
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("bench")
        await queue.purge()

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            arrived.put_nowait(time.perf_counter())
            await message.ack()

        await queue.consume(on_message)
        milliseconds = []
        for _ in range(IDLE):
            await app.outbox.publish("bench", BODY)
            committed = time.perf_counter()
            milliseconds.append((await arrived.get() - committed) * 1000)
            await asyncio.sleep(0.02)
    relay_task.cancel()
    await asyncio.gather(relay_task, return_exceptions=True)
    return milliseconds


async def measure(database: str, broker: str, messages: int) -> None:
    """Measure and print all figures."""
    app = Holdfast(database)
    await app.migrate()
    app.topic("bench", to=broker, exchange="bench", queue="bench", declare=True)
    async with app:
        await app.outbox.publish("bench", b"declares the queue")
        await app.outbox.run_relay(until_idle=True)
        ratios = []
        for number in range(ROUNDS):
            bare_rate = await bare(broker, messages)
            relay_rate = await relayed(app, messages)
            ratios.append(relay_rate / bare_rate)
            print(
                f"round {number + 1}: bare {bare_rate:7,.0f}/s   relay {relay_rate:7,.0f}/s   ratio {relay_rate / bare_rate:.2f}"
            )
        print(f"ratio, median of {ROUNDS}: {statistics.median(ratios):.2f} (target: at least 0.6)")
        milliseconds = sorted(await idle(app, broker))
        print(
            f"commit to broker, idle: p50 {statistics.median(milliseconds):.1f} ms (target: at most 20),"
            f" p95 {milliseconds[int(len(milliseconds) * 0.95)]:.1f} ms"
        )


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    with RabbitMq() as broker, Postgres(durable=True) as postgres:
        asyncio.run(measure(postgres.create_database("bench"), broker.url(), messages))
    keeper.close()


if __name__ == "__main__":
    main()

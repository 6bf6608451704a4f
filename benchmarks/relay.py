"""The relay against a bare confirm loop, on one private RabbitMQ and PostgreSQL: `python -m benchmarks.relay [messages]`.

Prints the rate of a bare aio-pika loop with the same window, the relay's rate on the same queue type, their ratio (at least 0.6
is wanted), and how long a message takes from its commit to the queue when all is idle (p50 of at most 20 ms).
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import aio_pika

from holdfast import Holdfast
from holdfast.domain.outbox import BATCH
from tests.services import keeper
from tests.services.postgres import Postgres
from tests.services.rabbitmq import RabbitMq

BODY = (
    b'{"submission": "0190a0b0-1111-7abc-8def-0123456789ab", "skill": "writing", "text": "'
    + b"x" * 400
    + b'"}'
)
ROUNDS = 3
IDLE = 100


async def bare(url: str, messages: int) -> float:
    """Messages a second: a window is published, its confirms are awaited, and so on; two windows at once, as the relay has."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.get_exchange("bench")

        async def hand(number: int) -> None:
            for _ in range(number // BATCH):
                await asyncio.gather(
                    *(
                        exchange.publish(
                            aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT), "bench"
                        )
                        for _ in range(BATCH)
                    )
                )

        began = time.perf_counter()
        await asyncio.gather(hand(messages // 2), hand(messages // 2))
        return messages / (time.perf_counter() - began)


async def relayed(app: Holdfast, messages: int) -> float:
    engine = await app.engine()
    for _ in range(0, messages, 500):
        await engine.publish([engine.new_message("bench", BODY, key=None, headers=None) for _ in range(500)])
    began = time.perf_counter()
    await app.run_relay(until_idle=True)
    return messages / (time.perf_counter() - began)


async def idle(app: Holdfast, url: str) -> list[float]:
    """Milliseconds from the answer of publish, its commit, to a consumer of the queue."""
    arrived: asyncio.Queue[float] = asyncio.Queue()
    relaying = asyncio.create_task(app.run_relay())
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("bench")
        await queue.purge()

        async def note(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            arrived.put_nowait(time.perf_counter())
            await message.ack()

        await queue.consume(note)
        spans = []
        for _ in range(IDLE):
            await app.publish("bench", BODY)
            committed = time.perf_counter()
            spans.append((await arrived.get() - committed) * 1000)
            await asyncio.sleep(0.02)
    relaying.cancel()
    await asyncio.gather(relaying, return_exceptions=True)
    return spans


async def measure(database: str, broker: str, messages: int) -> None:
    app = Holdfast(database)
    await app.migrate()
    app.topic("bench", to=broker, exchange="bench", queue="bench", declare=True)
    async with app:
        await app.publish("bench", b"declares the queue")
        await app.run_relay(until_idle=True)
        ratios = []
        for number in range(ROUNDS):
            floor = await bare(broker, messages)
            ours = await relayed(app, messages)
            ratios.append(ours / floor)
            print(
                f"round {number + 1}: bare {floor:7,.0f}/s   relay {ours:7,.0f}/s   ratio {ours / floor:.2f}"
            )
        print(f"ratio, median of {ROUNDS}: {statistics.median(ratios):.2f} (at least 0.6 is wanted)")
        spans = sorted(await idle(app, broker))
        print(
            f"commit to broker, idle: p50 {statistics.median(spans):.1f} ms (at most 20 is wanted),"
            f" p95 {spans[int(len(spans) * 0.95)]:.1f} ms"
        )


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    with RabbitMq() as broker, Postgres(durable=True) as postgres:
        asyncio.run(measure(postgres.create_database("bench"), broker.url(), messages))
    keeper.close()


if __name__ == "__main__":
    main()

"""Reads `grading.callback`: acknowledged after the store has committed, refused once and for all, never in a loop."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import AMQPError

from holdfast import Conflict, StoreError
from holdfast.logs import Log
from systems.grading.callbacks.applying import Refused, apply
from systems.grading.tasks import Grading
from systems.grading.topology import CALLBACKS, REFUSED, queues

log = Log("grading.callbacks")

#: How many callbacks are in hand at once.
PREFETCH = 50
AGAIN_SEC, LONGEST_SEC = 0.5, 5.0
#: How much of a refused callback is kept with the reason.
_SHOWN = 64 * 1024


async def consume(grading: Grading, *, ready: asyncio.Event | None = None) -> None:
    """Until cancelled. A broker that is away is looked for again and again."""
    wait = AGAIN_SEC
    while True:
        try:
            connection = await aio_pika.connect(grading.settings.broker_url, timeout=5)
        except (AMQPError, OSError, TimeoutError) as error:
            log.warning("broker.unavailable", reason=f"the broker cannot be reached ({type(error).__name__})")
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_SEC)
            continue
        wait = AGAIN_SEC
        try:
            async with connection:
                await _read(grading, connection, ready)
        except (AMQPError, OSError, TimeoutError, aio_pika.exceptions.ChannelInvalidStateError) as error:
            log.warning("broker.disconnected", reason=type(error).__name__)
            await asyncio.sleep(wait)


async def declare(channel: AbstractChannel) -> None:
    for name, arguments in queues().items():
        await channel.declare_queue(name, durable=True, arguments=arguments)


async def _read(grading: Grading, connection: Any, ready: asyncio.Event | None) -> None:
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
    await declare(channel)
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await channel.get_queue(CALLBACKS, ensure=False)
    arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    await queue.consume(arrived.put)
    if ready is not None:
        ready.set()
    gone = asyncio.Event()
    for closing in (connection, channel):
        closing.close_callbacks.add(lambda *_: gone.set())
    lost = asyncio.ensure_future(gone.wait())
    try:
        while True:
            coming = asyncio.ensure_future(arrived.get())
            await asyncio.wait({coming, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                raise ConnectionError("the broker has gone")
            await _take(grading, channel, coming.result())
    finally:
        lost.cancel()


async def _take(grading: Grading, channel: AbstractChannel, message: AbstractIncomingMessage) -> None:
    """One after another, as they were sent: an end does not overtake its beginning for no reason."""
    facts = {"message_id": (message.message_id or "")[:100]}
    while True:
        try:
            reply = await apply(
                grading,
                content_type=message.content_type or "",
                headers=message.headers,
                message_id=message.message_id,
                body=message.body,
            )
        except Refused as refused:
            log.warning("callback.refused", reason=str(refused), **facts)
            await _put_aside(channel, message, str(refused))
            break
        except (StoreError, Conflict) as error:
            log.warning("callback.retrying", reason=str(error), **facts)
            await asyncio.sleep(AGAIN_SEC)  # in our hands meanwhile: nobody else is asked the same
            continue
        log.info("callback.applied", reply=str(reply), **facts)
        break
    await message.ack()


async def _put_aside(channel: AbstractChannel, message: AbstractIncomingMessage, reason: str) -> None:
    kept = aio_pika.Message(
        message.body[:_SHOWN],
        headers={"refused-because": reason[:500]},
        content_type="application/octet-stream",  # nobody is to read it by what it calls itself
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=(message.message_id or "")[:100],
    )
    await channel.default_exchange.publish(kept, routing_key=REFUSED, mandatory=True, timeout=10)

"""Consume `grading.callback`. A callback is acknowledged once the store has committed it or it is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import AMQPError

from holdfast import Conflict, StoreError
from holdfast.logging import Log
from systems.grading.callbacks.handler import Refused, apply
from systems.grading.tasks import Grading
from systems.grading.topology import CALLBACKS, REFUSED, queues

log = Log("grading.callbacks")

#: The number of unacknowledged callbacks that the broker sends ahead.
PREFETCH = 50
AGAIN_SEC, LONGEST_SEC = 0.5, 5.0
#: The bytes of a refused callback that are kept with the reason.
_KEPT_BYTES = 64 * 1024


async def consume(grading: Grading, *, ready: asyncio.Event | None = None) -> None:
    """Apply callbacks until cancelled, and reconnect to the broker whenever the connection is lost.

    *ready* is set once callbacks are received.
    """
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
    """Declare the permanent queues."""
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
    closed = asyncio.Event()
    for closing in (connection, channel):
        closing.close_callbacks.add(lambda *_: closed.set())
    disconnected = asyncio.ensure_future(closed.wait())
    try:
        while True:
            arriving = asyncio.ensure_future(arrived.get())
            await asyncio.wait({arriving, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if not arriving.done():
                arriving.cancel()
                raise ConnectionError("the broker has gone")
            # One at a time, so that the end of a request does not overtake its beginning.
            await _handle(grading, channel, arriving.result())
    finally:
        disconnected.cancel()


async def _handle(grading: Grading, channel: AbstractChannel, message: AbstractIncomingMessage) -> None:
    """Apply a callback or put it aside, then acknowledge it. Try again while the store does not answer."""
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
            await asyncio.sleep(AGAIN_SEC)  # it stays unacknowledged, so no other process gets it
            continue
        log.info("callback.applied", reply=str(reply), **facts)
        break
    await message.ack()


async def _put_aside(channel: AbstractChannel, message: AbstractIncomingMessage, reason: str) -> None:
    copy = aio_pika.Message(
        message.body[:_KEPT_BYTES],
        headers={"refused-because": reason[:500]},
        content_type="application/octet-stream",  # its own content type is not trusted
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=(message.message_id or "")[:100],
    )
    await channel.default_exchange.publish(copy, routing_key=REFUSED, mandatory=True, timeout=10)

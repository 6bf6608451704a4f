"""RabbitMQ: persistent messages, published with `mandatory` and confirmed by the broker.

```text
  batch ──▶ connect (bounded) ──▶ blocked? put off ──▶ publish all ──▶ confirms: ack            Delivered
                                                                     │         nack           try again
                                                                     │         return         lasting: nobody would get it
                                                                     └ none in time, or cut   in doubt: try again
```

Every topic has a channel of its own, for a mistake in one (an exchange that is not there) closes its channel. A confirm that
did not come leaves the connection in doubt: it is dropped, and the next batch begins with a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractExchange
from aio_pika.connection import Connection, make_url
from aio_pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
)
from aiormq.exceptions import ChannelAccessRefused

from holdfast.domain.outbox import Delivered, Delivery, Message, Undelivered
from holdfast.domain.urls import shown
from holdfast.engine.transport import JSON, content_type, own_headers
from holdfast.transports.targets import LONGEST_NAME, RabbitTarget

CONNECT_WITHIN = 5.0
CONFIRM_WITHIN = 10.0
CLOSE_WITHIN = 1.0
#: While confirms are outstanding: how often it is looked whether the broker has blocked us.
LOOK_EVERY = 0.25
#: How often a dead letter may be looked at and put back: without a limit of its own RabbitMQ 4 drops it after 20 times, and
#: there is no word for "never" that older ones know.
_LOOKS = 1_000_000_000

_BLOCKED = Undelivered("the broker takes no messages now: an alarm of its memory or disk", away=True)
_TIMED_OUT = Undelivered(f"the broker did not confirm it within {CONFIRM_WITHIN:.0f} s", away=True)
_CUT = Undelivered("the connection to the broker was lost before it confirmed", away=True)


#: What the broker says about one channel. Anything else leaves the connection in doubt.
_OF_THE_TOPIC = (ChannelNotFoundEntity, ChannelPreconditionFailed, ChannelAccessRefused)


class _IsBlocked(Exception):
    pass


class RabbitTransport:
    """*topics* are those that go to this *address*."""

    def __init__(self, address: str, topics: Mapping[str, RabbitTarget]) -> None:
        self._address, self._topics = address, topics
        self._where = shown(address)
        self._connection: Connection | None = None
        self._lines: dict[str, tuple[AbstractChannel, AbstractExchange]] = {}
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        for name in ("aiormq", "aio_pika"):  # every loss comes with its stack; the relay says it in one line
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.CRITICAL)

    async def close(self) -> None:
        await self._drop()

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        by_topic: dict[str, list[Message]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        told = await asyncio.gather(*(self._deliver(topic, some) for topic, some in by_topic.items()))
        answers = {number: answer for some in told for number, answer in some}
        return [answers[message.number] for message in messages]

    async def _deliver(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, Delivery]]:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                exchange = await self._exchange(topic)
        except _IsBlocked:
            return _all(messages, _BLOCKED)
        except TimeoutError:
            await self._drop()
            return _all(messages, Undelivered(f"{self._where} did not answer in time", away=True))
        except (OSError, AMQPError, RuntimeError, ValueError) as error:
            if not isinstance(error, _OF_THE_TOPIC):
                await self._drop()
            return _all(messages, self._unready(topic, error))
        key = _key(topic, self._topics[topic])
        sending = [asyncio.ensure_future(_publish(exchange, one, key)) for one in messages]
        try:
            patience = await self._wait(sending)
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        answers = [self._read(topic, task, patience) for task in sending]
        if patience is _TIMED_OUT:
            await self._drop()
        return [(message.number, answer) for message, answer in zip(messages, answers, strict=True)]

    async def _wait(self, sending: Sequence[asyncio.Future[Any]]) -> Undelivered:
        """Until all are answered, the broker blocks us, or it took too long: what is to be said of those without answer."""
        pending: set[asyncio.Future[Any]] = set(sending)
        for _ in range(int(CONFIRM_WITHIN / LOOK_EVERY)):
            _, pending = await asyncio.wait(pending, timeout=LOOK_EVERY)
            if not pending:
                break
            if self._blocked:
                return _BLOCKED
        return _TIMED_OUT if pending else _CUT

    def _read(self, topic: str, task: asyncio.Future[Any], otherwise: Undelivered) -> Delivery:
        if task.cancelled():
            return otherwise
        match task.exception():
            case None:
                return Delivered()  # an ack: nacks and returns are raised
            case PublishError():
                return Undelivered(
                    f"unroutable: on {self._where} no queue is bound for it ({self._target(topic)});"
                    " bind one, then replay it",
                    lasting=True,
                )
            case DeliveryError():
                return Undelivered("the broker refused it (nack): its queue is full or broken")
            case AMQPConnectionError() | OSError():
                return _CUT
            case AMQPError() | RuntimeError() as error:
                return self._unready(topic, error)
            case error:  # it was not even sent: a header that AMQP has no form for
                return Undelivered(f"it cannot be written in AMQP: {type(error).__name__}", lasting=True)

    def _unready(self, topic: str, error: BaseException) -> Undelivered:
        target = self._target(topic)
        match error:
            case ChannelNotFoundEntity():
                return Undelivered(
                    f"{self._where} has no such exchange ({target}); make it, or say declare=True"
                )
            case ChannelPreconditionFailed():
                return Undelivered(f"{self._where} has it already, declared otherwise ({target})")
            case ChannelAccessRefused():
                return Undelivered(f"{self._where} does not let this user publish there ({target})")
            case ProbableAuthenticationError():
                return Undelivered(f"{self._where} does not know this user or password", away=True)
            case OSError() | AMQPConnectionError():
                return Undelivered(f"{self._where} cannot be reached", away=True)
            case RuntimeError():  # the driver's word for a connection or channel that is closed
                return _CUT
        return Undelivered(f"{self._where}: {type(error).__name__} ({target})", away=True)

    def _target(self, topic: str) -> str:
        target = self._topics[topic]
        return f"exchange {target.exchange!r}, routing key {_key(topic, target)!r}"

    # -- the connection ---------------------------------------------------------------------------------------------
    @property
    def _blocked(self) -> bool:
        transport = self._connection.transport if self._connection is not None else None
        return transport is not None and not _is_ready(transport.connection)

    async def _exchange(self, topic: str) -> AbstractExchange:
        """Connected, with what the topic wants declared."""
        async with self._opening:
            if self._connection is None or not self._connection.connected.is_set():
                await self._drop()
                self._connection = await _connect(self._address)
            if self._blocked:  # not even a channel can be had then
                raise _IsBlocked
            channel, exchange = self._lines.get(topic, (None, None))
            if channel is None or exchange is None or channel.is_closed:
                channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                exchange = await _ready(channel, topic, self._topics[topic])
                self._lines[topic] = channel, exchange
            return exchange

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._lines.clear()
        if connection is not None:
            await _close(connection)


async def _connect(address: str) -> Connection:
    connection = Connection(make_url(address))
    try:
        await connection.connect(timeout=CONNECT_WITHIN)
    except BaseException:  # or it tries to close itself when it is collected, wherever that is
        await _close(connection)
        raise
    return connection


async def _close(connection: Connection) -> None:
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_WITHIN):
            await connection.close()
    with suppress(Exception):
        await connection.close()  # it has let go of the socket: this only notes that it is closed


def _all(messages: Sequence[Message], answer: Undelivered) -> list[tuple[int, Delivery]]:
    return [(message.number, answer) for message in messages]


def _key(topic: str, target: RabbitTarget) -> str:
    return topic if target.routing_key is None else target.routing_key


def _is_ready(connection: Any) -> bool:
    """The driver has no question for "are we blocked?", only a wait for the end of it: begun, and not waited for."""
    waiting = connection.ready()
    try:
        waiting.send(None)
    except StopIteration:
        return True
    finally:
        waiting.close()
    return False


async def _publish(exchange: AbstractExchange, message: Message, key: str) -> None:
    await exchange.publish(_dressed(message), key, mandatory=True)


def _dressed(message: Message) -> aio_pika.Message:
    kind, headers = content_type(message), own_headers(message)
    if message.key is not None:
        headers["holdfast-key"] = message.key
    if any(len(word.encode()) > LONGEST_NAME for word in (kind, message.id, *headers)):
        raise ValueError("too long for AMQP")  # the driver would cut it off and go on
    return aio_pika.Message(
        message.body,
        headers=dict(headers),
        content_type=kind,
        content_encoding="utf-8" if kind == JSON else None,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=message.id,
        timestamp=message.created_at,
        type=message.topic if len(message.topic.encode()) <= LONGEST_NAME else None,
        app_id="holdfast",
    )


async def _ready(channel: AbstractChannel, topic: str, target: RabbitTarget) -> AbstractExchange:
    """The exchange to publish to; with *declare*, what is missing is made first."""
    if not target.declare:
        return (
            await channel.get_exchange(target.exchange, ensure=False)
            if target.exchange
            else channel.default_exchange
        )
    exchange = channel.default_exchange
    if target.exchange:
        exchange = await channel.declare_exchange(target.exchange, target.exchange_type, durable=True)
    if target.queue is not None:
        await _declare_queue(channel, exchange, target.queue, _key(topic, target), target)
    return exchange


async def _declare_queue(
    channel: AbstractChannel, exchange: AbstractExchange, name: str, key: str, target: RabbitTarget
) -> None:
    dead = f"{name}.dead"
    graveyard = await channel.declare_exchange(dead, "fanout", durable=True)
    kept: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": _LOOKS}
    buried = await channel.declare_queue(dead, durable=True, arguments=kept)
    await buried.bind(graveyard, "")
    queue = await channel.declare_queue(
        name,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": target.delivery_limit,
            "x-dead-letter-exchange": dead,
            # Or a dead letter is lost when the broker stops between the two queues.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            **target.queue_arguments,
        },
    )
    if target.exchange:  # the default exchange leads to every queue by its name, and cannot be bound to
        await queue.bind(exchange, key)

"""RabbitMQ: persistent messages, published with `mandatory` and confirmed by the broker.

```text
  batch ──▶ connect (bounded) ──▶ blocked? put off ──▶ publish all ──▶ confirms: ack            Delivered
                                                                     │         nack           try again
                                                                     │         return         lasting: no queue gets it
                                                                     └ none in time, or cut   unknown: try again
```

Every topic has its own channel, because an error in one (such as a missing exchange) closes its channel.
After a missing confirm the state of the connection is unknown: it is dropped, and the next batch opens a new
one.
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

from holdfast.outbox.model import Delivered, Delivery, Message, Undelivered
from holdfast.outbox.transport import JSON, content_type, own_headers
from holdfast.outbox.transports.targets import LONGEST_NAME, RabbitTarget
from holdfast.values.urls import shown

CONNECT_WITHIN = 5.0
CONFIRM_WITHIN = 10.0
CLOSE_WITHIN = 1.0
#: How often, while confirms are outstanding, to check whether the broker has blocked the connection, in
#: seconds.
CHECK_EVERY = 0.25
#: How many times a dead letter may be read and requeued. Without a limit RabbitMQ 4 drops it after 20 times,
#: and older versions know no value for "unlimited".
_MOST_READS = 1_000_000_000

_BLOCKED = Undelivered("the broker accepts no messages now: it has a memory or disk alarm", away=True)
_TIMED_OUT = Undelivered(f"the broker did not confirm it within {CONFIRM_WITHIN:.0f} s", away=True)
_CUT = Undelivered("the connection to the broker was lost before it confirmed", away=True)


#: Errors of a single channel. After any other error the state of the connection is unknown.
_OF_THE_TOPIC = (ChannelNotFoundEntity, ChannelPreconditionFailed, ChannelAccessRefused)


class _IsBlocked(Exception):
    pass


class RabbitTransport:
    """Publishes the messages of *topics* to the broker at *address*."""

    def __init__(self, address: str, topics: Mapping[str, RabbitTarget]) -> None:
        self._address, self._topics = address, topics
        self._where = shown(address)
        self._connection: Connection | None = None
        self._channels: dict[str, tuple[AbstractChannel, AbstractExchange]] = {}
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        for name in ("aiormq", "aio_pika"):  # they log every loss with its stack; the relay logs one line
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:
                logger.setLevel(logging.CRITICAL)

    async def close(self) -> None:
        await self._drop()

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        by_topic: dict[str, list[Message]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        answered = await asyncio.gather(*(self._deliver(topic, batch) for topic, batch in by_topic.items()))
        answers = {number: answer for batch in answered for number, answer in batch}
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
            return _all(messages, self._failure_of(topic, error))
        key = _key(topic, self._topics[topic])
        sending = [asyncio.ensure_future(_publish(exchange, one, key)) for one in messages]
        try:
            rest = await self._wait(sending)
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        answers = [self._answer_of(topic, task, rest) for task in sending]
        if rest is _TIMED_OUT:
            await self._drop()
        return [(message.number, answer) for message, answer in zip(messages, answers, strict=True)]

    async def _wait(self, sending: Sequence[asyncio.Future[Any]]) -> Undelivered:
        """Wait until all are answered, the broker blocks the connection, or time is up.

        Return the answer for the rest.
        """
        pending: set[asyncio.Future[Any]] = set(sending)
        for _ in range(int(CONFIRM_WITHIN / CHECK_EVERY)):
            _, pending = await asyncio.wait(pending, timeout=CHECK_EVERY)
            if not pending:
                break
            if self._blocked:
                return _BLOCKED
        return _TIMED_OUT if pending else _CUT

    def _answer_of(self, topic: str, task: asyncio.Future[Any], otherwise: Undelivered) -> Delivery:
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
                return self._failure_of(topic, error)
            case error:  # it was not sent: it has a header that AMQP cannot encode
                return Undelivered(f"it cannot be written in AMQP: {type(error).__name__}", lasting=True)

    def _failure_of(self, topic: str, error: BaseException) -> Undelivered:
        target = self._target(topic)
        match error:
            case ChannelNotFoundEntity():
                return Undelivered(
                    f"{self._where} has no such exchange ({target}); create it, or use declare=True"
                )
            case ChannelPreconditionFailed():
                return Undelivered(f"{self._where} already has it with other arguments ({target})")
            case ChannelAccessRefused():
                return Undelivered(f"{self._where} does not let this user publish there ({target})")
            case ProbableAuthenticationError():
                return Undelivered(f"{self._where} rejects this user or password", away=True)
            case OSError() | AMQPConnectionError():
                return Undelivered(f"{self._where} cannot be reached", away=True)
            case RuntimeError():  # the driver raises it for a closed connection or channel
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
        """Return the exchange of *topic*, connected and with everything declared."""
        async with self._opening:
            if self._connection is None or not self._connection.connected.is_set():
                await self._drop()
                self._connection = await _connect(self._address)
            if self._blocked:  # then not even a channel can be opened
                raise _IsBlocked
            channel, exchange = self._channels.get(topic, (None, None))
            if channel is None or exchange is None or channel.is_closed:
                channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                exchange = await _ready(channel, topic, self._topics[topic])
                self._channels[topic] = channel, exchange
            return exchange

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._channels.clear()
        if connection is not None:
            await _close(connection)


async def _connect(address: str) -> Connection:
    connection = Connection(make_url(address))
    try:
        await connection.connect(timeout=CONNECT_WITHIN)
    except BaseException:  # or it would close itself when it is garbage-collected, in whatever thread
        await _close(connection)
        raise
    return connection


async def _close(connection: Connection) -> None:
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_WITHIN):
            await connection.close()
    with suppress(Exception):
        await connection.close()  # the socket is released: this only marks it as closed


def _all(messages: Sequence[Message], answer: Undelivered) -> list[tuple[int, Delivery]]:
    return [(message.number, answer) for message in messages]


def _key(topic: str, target: RabbitTarget) -> str:
    return topic if target.routing_key is None else target.routing_key


def _is_ready(connection: Any) -> bool:
    """Return whether the connection is not blocked.

    The driver only offers a wait for that, which is started and dropped.
    """
    wait = connection.ready()
    try:
        wait.send(None)
    except StopIteration:
        return True
    finally:
        wait.close()
    return False


async def _publish(exchange: AbstractExchange, message: Message, key: str) -> None:
    await exchange.publish(_amqp_message(message), key, mandatory=True)


def _amqp_message(message: Message) -> aio_pika.Message:
    kind, headers = content_type(message), own_headers(message)
    if message.key is not None:
        headers["holdfast-key"] = message.key
    if any(len(word.encode()) > LONGEST_NAME for word in (kind, message.id, *headers)):
        raise ValueError("too long for AMQP")  # the driver would cut it off silently
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
    """Return the exchange to publish to. With `declare`, create what is missing first."""
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
    dead_name = f"{name}.dead"
    dead_exchange = await channel.declare_exchange(dead_name, "fanout", durable=True)
    arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": _MOST_READS}
    dead_queue = await channel.declare_queue(dead_name, durable=True, arguments=arguments)
    await dead_queue.bind(dead_exchange, "")
    queue = await channel.declare_queue(
        name,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": target.delivery_limit,
            "x-dead-letter-exchange": dead_name,
            # Otherwise a dead letter is lost if the broker stops between the two queues.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            **target.queue_arguments,
        },
    )
    if target.exchange:  # the default exchange routes to every queue by name and accepts no bindings
        await queue.bind(exchange, key)

"""Redis Streams: one XADD per message, all of a batch in one pipeline.

The answer with the entry's id is the confirm.
Redis may lose confirmed messages (FLUSHALL, eviction, a crash between two fsyncs). Published messages stay in
the outbox for their retention and can be replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as TookTooLong

from holdfast.outbox.model import Delivered, Delivery, Message, Undelivered
from holdfast.outbox.transport import content_type, own_headers
from holdfast.outbox.transports.targets import RedisTarget
from holdfast.values.urls import shown

CONNECT_WITHIN = 5.0
ANSWER_WITHIN = 10.0


class RedisTransport:
    """Appends the messages of *topics* to streams of the Redis at *address*."""

    def __init__(self, address: str, topics: Mapping[str, RedisTarget]) -> None:
        self._address, self._topics = address, topics
        self._where = shown(address)
        self._client: Any = None

    async def open(self) -> None:
        # No retries in the client: they would duplicate a batch, and the relay retries anyway.
        self._client = Redis.from_url(
            self._address,
            socket_connect_timeout=CONNECT_WITHIN,
            socket_timeout=ANSWER_WITHIN,
            retry=Retry(NoBackoff(), 0),
        )

    async def close(self) -> None:
        if self._client is not None:
            with suppress(RedisError, OSError):
                await self._client.aclose()

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for message in messages:
                    target = self._topics[message.topic]
                    pipeline.xadd(
                        target.stream or message.topic,
                        fields(message),
                        maxlen=target.maxlen,
                        approximate=True,
                    )
                answers = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as error:
            answers = [error] * len(messages)
        return [self._answer_of(message, answer) for message, answer in zip(messages, answers, strict=True)]

    def _answer_of(self, message: Message, answer: object) -> Delivery:
        match answer:
            case AuthenticationError() | AuthorizationError():
                return Undelivered(f"{self._where} rejects this user or password", away=True)
            case TookTooLong() | NotConnected() | OSError() | BusyLoadingError() | ReadOnlyError():
                return Undelivered(f"{self._where} cannot be reached, or cannot write now", away=True)
            case OutOfMemoryError():
                return Undelivered(
                    f"{self._where} is full: it accepts no more until something is removed", away=True
                )
            case NoPermissionError():
                return Undelivered(f"{self._where} does not let this user write the stream")
            case ResponseError():
                stream = self._topics[message.topic].stream or message.topic
                kind = str(answer).partition(" ")[0][:20]
                if kind == "WRONGTYPE":
                    return Undelivered(f"the key {stream!r} on {self._where} is not a stream")
                # MISCONF, CLUSTERDOWN, NOREPLICAS, MASTERDOWN, …: Redis answers, but cannot write now.
                return Undelivered(f"{self._where} refused it: {kind}", away=kind.isupper())
            case BaseException():
                return Undelivered(f"{self._where}: {type(answer).__name__}", away=True)
        return Delivered()


def fields(message: Message) -> dict[str, bytes | str]:
    """Return the fields of the stream entry for *message*."""
    entry: dict[str, bytes | str] = {
        "id": message.id,
        "topic": message.topic,
        "content_type": content_type(message),
        "headers": msgspec.json.encode(own_headers(message)),
        "created_at": message.created_at.isoformat(),
        "body": message.body,
    }
    if message.key is not None:
        entry["key"] = message.key
    return entry

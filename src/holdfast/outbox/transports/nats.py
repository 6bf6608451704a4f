"""NATS JetStream: the stream that stores a message confirms it. A subject without a stream is unroutable."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.errors import (
    AuthorizationError,
    ConnectionClosedError,
    Error,
    MaxPayloadError,
    NoServersError,
    StaleConnectionError,
)
from nats.js import JetStreamContext
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError

from holdfast.outbox.model import Delivered, Delivery, Message, Undelivered
from holdfast.outbox.transports.headers import as_lines
from holdfast.outbox.transports.targets import NatsTarget
from holdfast.values.urls import shown

CONNECT_WITHIN = 5.0
CONFIRM_WITHIN = 10.0


class NatsTransport:
    """Publishes the messages of *topics* to the JetStream at *address*."""

    def __init__(self, address: str, topics: Mapping[str, NatsTarget]) -> None:
        self._address, self._topics = address, topics
        self._where = shown(address)
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._opening = asyncio.Lock()
        self._lost = asyncio.Event()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            with suppress(Exception):
                async with asyncio.timeout(1):
                    await client.close()

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                stream = await self._connected()
        except (OSError, Error, TimeoutError) as error:
            await self.close()
            return [self._failure_of(error)] * len(messages)
        sending = [asyncio.ensure_future(self._publish(stream, message)) for message in messages]
        lost = asyncio.ensure_future(self._lost.wait())
        waits: set[asyncio.Future[Any]] = {asyncio.gather(*sending, return_exceptions=True), lost}
        try:
            # When the connection is lost the client leaves its callers waiting for an answer.
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*sending, lost):
                task.cancel()
            await asyncio.gather(*sending, lost, return_exceptions=True)
        lost_answer = self._failure_of(ConnectionClosedError())
        answers: list[Delivery] = [lost_answer if task.cancelled() else task.result() for task in sending]
        if any(isinstance(answer, Undelivered) and answer.away for answer in answers):
            await self.close()
        return answers

    async def _publish(self, stream: JetStreamContext, message: Message) -> Delivery:
        target = self._topics[message.topic]
        headers = as_lines(message)
        if isinstance(headers, Undelivered):
            return headers
        if target.dedupe:
            headers["Nats-Msg-Id"] = headers["holdfast-id"]
        subject = target.subject or message.topic
        try:
            await stream.publish(subject, message.body, timeout=CONFIRM_WITHIN, headers=headers)
            return Delivered()
        except NoStreamResponseError:
            return await self._unrouted(stream, subject)
        except (OSError, Error, TimeoutError, ValueError) as error:
            return self._failure_of(error)

    async def _unrouted(self, stream: JetStreamContext, subject: str) -> Undelivered:
        """Return why nothing answered: no stream stores this subject, or JetStream is not running yet."""
        try:
            await stream.find_stream_name_by_subject(subject)
        except NotFoundError:
            return Undelivered(
                f"unroutable: on {self._where} no stream stores the subject {subject!r}; create one, then replay it",
                lasting=True,
            )
        except (OSError, Error, TimeoutError, ValueError):
            pass
        return Undelivered(f"{self._where}: JetStream does not answer", away=True)

    def _failure_of(self, error: BaseException) -> Undelivered:
        match error:
            case AuthorizationError():
                return Undelivered(f"{self._where} rejects this user or password", away=True)
            case Error() if "authorization violation" in str(error).lower():
                return self._failure_of(AuthorizationError())
            case MaxPayloadError():
                return Undelivered(f"it is larger than {self._where} allows (max_payload)", lasting=True)
            case APIError():
                return Undelivered(
                    f"{self._where} refused it: {(error.description or 'no reason given')[:200]}"
                )
            case (
                OSError()
                | NoServersError()
                | ConnectionClosedError()
                | StaleConnectionError()
                | TimeoutError()
            ):
                return Undelivered(f"{self._where} cannot be reached, or did not confirm in time", away=True)
        return Undelivered(f"{self._where}: {type(error).__name__}", away=True)

    # -- the connection ---------------------------------------------------------------------------------------------
    async def _connected(self) -> JetStreamContext:
        async with self._opening:
            if self._client is not None and self._client.is_connected and self._stream is not None:
                return self._stream
            await self.close()
            self._client = Client()  # stored before it connects: a refused client has a socket to close
            lost = self._lost = asyncio.Event()

            async def on_disconnect() -> None:
                lost.set()

            await self._client.connect(
                self._address,
                connect_timeout=int(CONNECT_WITHIN),
                # the relay retries; the client must not buffer messages and send them later
                allow_reconnect=False,
                max_reconnect_attempts=1,  # or it would try the address forever
                reconnect_time_wait=0,
                error_cb=_ignore_error,
                disconnected_cb=on_disconnect,
            )
            self._stream = self._client.jetstream(timeout=CONFIRM_WITHIN)
            for topic, target in self._topics.items():
                if target.stream is not None:
                    await _declare(self._stream, target.stream, target.subject or topic)
            return self._stream


async def _declare(stream: JetStreamContext, name: str, subject: str) -> None:
    try:
        await stream.stream_info(name)
    except NotFoundError:
        with suppress(BadRequestError):  # another relay was first, or a stream stores the subject already
            await stream.add_stream(name=name, subjects=[subject])


async def _ignore_error(error: Exception) -> None:
    """Ignore an error that the client would print. The caller gets an exception for it."""

"""One bench for each kind of target: the real server, a proxy before it, and somebody who looks what has arrived."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import aio_pika
import nats
from redis.asyncio import Redis

from devservices.nats import NatsServer
from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast.outbound import Outbound
from holdfast.outbox.model import Message, MessageState
from holdfast.outbox.transport import Transport, content_type
from holdfast.outbox.transports.memory import box
from holdfast.outbox.transports.targets import read_target
from holdfast.values.addresses import networks
from holdfast.wiring import SystemClock, make_transport
from tests.endpoint import Endpoint

_numbers = itertools.count(1)
NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ANSWER_WITHIN = 20.0  #: of an endpoint
SECRET = "whsec_" + "aGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8h"


def a_message(
    topic: str, body: bytes = b"{}", *, key: str | None = None, headers: Mapping[str, str] | None = None
) -> Message:
    number = next(_numbers)
    return Message(
        number=number,
        id=f"0190a0b0-1111-7abc-8def-{number:012}",
        topic=topic,
        key=key,
        body=body,
        headers=headers or {},
        state=MessageState.WAITING,
        tries=0,
        error=None,
        created_at=NOW,
        not_before=None,
        settled_at=None,
    )


class Arrived(NamedTuple):
    id: str
    body: bytes
    content_type: str | None
    headers: Mapping[str, str]


class Bench(Protocol):
    kind: str
    topic: str
    proxy: Proxy
    password: str  #: of the address: nobody may say it
    options: dict[str, Any]

    @property
    def address(self) -> str:
        """Through the proxy."""

    async def arrived(self) -> list[Arrived]:
        """All that has arrived since the bench was made, in order."""


def transport_of(bench: Bench, address: str | None = None, **options: Any) -> Transport:
    address = address or bench.address
    target = read_target(bench.topic, address, {**bench.options, **options})
    calls = Outbound(allowed=networks("127.0.0.0/8"), seconds=ANSWER_WITHIN)
    return make_transport(address, {bench.topic: target}, SystemClock(), lambda: calls)


class RabbitBench:
    kind = "rabbitmq"

    def __init__(self, server: RabbitMq, proxy: Proxy) -> None:
        self._server, self.proxy, self.password = server, proxy, server.password
        self.topic = f"orders.{next(_numbers)}"
        self.options: dict[str, Any] = {
            "exchange": f"x.{self.topic}",
            "queue": f"q.{self.topic}",
            "declare": True,
        }

    @property
    def address(self) -> str:
        return self.proxy.route(self._server.url())

    async def arrived(self) -> list[Arrived]:
        found: list[Arrived] = []
        async with await aio_pika.connect(self._server.url()) as connection:
            channel = await connection.channel()
            queue = await channel.get_queue(self.options["queue"], ensure=False)
            while (message := await queue.get(fail=False)) is not None:
                headers = {name: str(value) for name, value in message.headers.items()}
                found.append(Arrived(message.message_id or "", message.body, message.content_type, headers))
        return found


class RedisBench:
    kind = "redis"

    def __init__(self, server: RedisServer, proxy: Proxy) -> None:
        self._server, self.proxy, self.password = server, proxy, server.password
        self.topic = f"orders.{next(_numbers)}"
        self.options: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return self.proxy.route(self._server.url())

    async def arrived(self) -> list[Arrived]:
        client: Any = Redis.from_url(self._server.url())
        try:
            entries = [fields for _, fields in await client.xrange(self.topic)]
        finally:
            await client.aclose()
        return [
            Arrived(e[b"id"].decode(), e[b"body"], e[b"content_type"].decode(), json.loads(e[b"headers"]))
            for e in entries
        ]


class NatsBench:
    kind = "nats"

    def __init__(self, server: NatsServer, proxy: Proxy) -> None:
        self._server, self.proxy, self.password = server, proxy, server.password
        number = next(_numbers)
        self.topic = f"orders.{number}"
        self.options: dict[str, Any] = {"stream": f"orders_{number}"}

    @property
    def address(self) -> str:
        return self.proxy.route(self._server.url)

    async def arrived(self) -> list[Arrived]:
        client = await nats.connect(self._server.url)
        try:
            stream = client.jetstream()
            state = (await stream.stream_info(self.options["stream"])).state
            found = []
            for number in range(state.first_seq, state.last_seq + 1):
                kept = await stream.get_msg(self.options["stream"], number)
                headers = kept.headers or {}
                found.append(
                    Arrived(headers["holdfast-id"], kept.data or b"", headers["content-type"], headers)
                )
            return found
        finally:
            await client.close()


class WebBench:
    kind = "webhook"

    def __init__(self, endpoint: Endpoint, proxy: Proxy) -> None:
        self.endpoint, self.proxy, self.password = endpoint, proxy, "t0ken-of-web"
        self.topic = f"orders.{next(_numbers)}"
        self.options: dict[str, Any] = {"secret": SECRET}

    @property
    def address(self) -> str:
        return f"{self.proxy.route(self.endpoint.url)}?token={self.password}"

    async def arrived(self) -> list[Arrived]:
        return [
            Arrived(m.id, m.body, m.headers.get("content-type"), m.headers) for m in self.endpoint.messages
        ]


class MemoryBench:
    """There is nothing between the transport and its box, so nothing to break."""

    kind, password = "memory", "none"
    proxy: Proxy

    def __init__(self) -> None:
        self.topic = f"orders.{next(_numbers)}"
        self.options: dict[str, Any] = {}

    @property
    def address(self) -> str:
        return f"memory://{self.topic}"

    async def arrived(self) -> list[Arrived]:
        return [Arrived(m.id, m.body, content_type(m), m.headers) for m in box(self.topic).messages]


@asynccontextmanager
async def a_bench(kind: str, servers: Mapping[str, Any]) -> AsyncIterator[Bench]:
    if kind == "memory":
        yield MemoryBench()
        return
    async with AsyncExitStack() as stack:
        endpoint = Endpoint()
        if kind == "webhook":
            await stack.enter_async_context(endpoint)
            host, port = "127.0.0.1", endpoint._port
        else:
            host, port = servers[kind].host, servers[kind].port
        proxy = await asyncio.to_thread(Proxy(host, port, postgres=False).start)
        stack.callback(proxy.close)
        match kind:
            case "rabbitmq":
                yield RabbitBench(servers[kind], proxy)
            case "redis":
                yield RedisBench(servers[kind], proxy)
            case "nats":
                yield NatsBench(servers[kind], proxy)
            case _:
                yield WebBench(endpoint, proxy)

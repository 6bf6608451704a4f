"""An address of somebody else's, on loopback: it keeps what it was told, and answers as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from standardwebhooks import Webhook as Verifier

from tests.loopback import close

#: What an app needs to be allowed to call it.
ALLOW = "127.0.0.0/8"


class Message(NamedTuple):
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.body)
        return told

    @property
    def kind(self) -> str:
        return str(self.event["type"]).removeprefix("holdfast.job.")

    def verify(self, secret: str) -> None:
        Verifier(secret).verify(self.body, self.headers)


class Endpoint:
    """*answer* is given each message, and says the status and further headers."""

    def __init__(self, answer: Callable[[Message], str] = lambda message: "204 No Content") -> None:
        self.answer = answer
        self.messages: list[Message] = []
        self._port = 0
        self._came = asyncio.Event()

    async def __aenter__(self) -> Endpoint:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        await close(self._server)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/hook"

    @property
    def kinds(self) -> list[str]:
        return [message.kind for message in self.messages]

    async def until(self, count: int) -> list[Message]:
        """Wait until so many messages came."""
        async with asyncio.timeout(20):
            while len(self.messages) < count:
                self._came.clear()
                await self._came.wait()
        return self.messages

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
            message = Message(headers, await reader.readexactly(int(headers.get("content-length", 0))))
            answer = self.answer(message)
            self.messages.append(message)
            self._came.set()
            writer.write(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

"""A client of server-sent events, as plain as can be: a socket, lines, and the number of the last event."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from holdfast import Holdfast
from holdfast.server.run import Server, listen, make_server


class Received(NamedTuple):
    id: int | None
    event: str
    data: Any


@asynccontextmanager
async def serving(app: Holdfast) -> AsyncIterator[tuple[int, Server]]:
    """The API of *app* on a free port, without keys."""
    listening = listen("127.0.0.1", 0)
    server = make_server(app, "127.0.0.1", rate=None)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1], server
    finally:
        server.stop()
        await running


class Listener:
    """One connection. HTTP/1.0, so that the body comes as it is."""

    def __init__(self, port: int, path: str = "/api/v1/events/stream", **headers: str) -> None:
        self._port, self._path, self._headers = port, path, headers
        self.last: int | None = None
        self.comments = 0
        self.retry: int | None = None
        self.head: dict[str, str] = {}

    async def __aenter__(self) -> Listener:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)  # who does not read is soon noticed
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self._port))
        self._reader, self._writer = await asyncio.open_connection(sock=raw, limit=2**20)
        told = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in self._headers.items())
        self._writer.write(f"GET {self._path} HTTP/1.0\r\nHost: 127.0.0.1\r\n{told}\r\n".encode())
        first = (await self._line()).split(" ")
        self.status = int(first[1])
        while line := await self._line():
            name, _, value = line.partition(": ")
            self.head[name.lower()] = value
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.transport.abort()  # killed, not closed

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line:
            raise EOFError
        return line.decode().rstrip("\r\n")

    async def next(self, seconds: float = 20) -> Received:
        """The next event; `EOFError` when the stream has ended."""
        event, data = "message", ""
        async with asyncio.timeout(seconds):
            while True:
                line = await self._line()
                name, _, value = line.partition(": ")
                match name:
                    case "id":
                        self.last = int(value)
                    case "event":
                        event = value
                    case "retry":
                        self.retry = int(value)
                    case "data":
                        data += value
                    case "":
                        if value:
                            self.comments += 1
                        elif data:
                            return Received(self.last, event, json.loads(data))
                if line.startswith(":"):
                    self.comments += 1

    async def until_beat(self) -> None:
        """Wait for a sign of life (and pass by events)."""
        seen = self.comments
        async with asyncio.timeout(20):
            while self.comments == seen or self.last is None:
                line = await self._line()
                self.comments += line.startswith(":")
                if line.startswith("id: "):
                    self.last = int(line[4:])
                if line.startswith("retry: "):
                    self.retry = int(line[7:])

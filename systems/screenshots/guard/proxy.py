"""The proxy itself: listens for each job, and connects pages to what is open to them."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from holdfast.outbound import (
    HostUnreachable,
    NetworkTarget,
    Resolve,
    TargetNotAllowed,
    look_up,
    open_addresses,
)
from systems.screenshots.guard.heads import HEAD_BYTES, BadHead, Request, read_answer, read_request
from systems.screenshots.guard.passes import Bounds, Pass, Trouble
from systems.screenshots.guard.rules import Rules

#: A refusal is given so long after it was asked for, whatever it took to decide on it.
REFUSAL_SECONDS = 0.1
#: A name that leads to no open address takes a whole number of these: the time must not show whether it exists.
NAME_SECONDS = 0.5
_BODY = b"This address is not open.\n"
REFUSAL = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
    % (len(_BODY), _BODY)
)
_NOT_REACHED = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"
_CHUNK = 64 << 10
#: How many addresses of a name are tried, one after the other.
_TRIES = 3

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Opens a connection to an address, never to a name.
Dial = Callable[[str, int], Awaitable[Streams]]


async def dial(address: str, port: int) -> Streams:
    return await asyncio.open_connection(address, port, limit=HEAD_BYTES)


async def streams_of(connected: socket.socket) -> Streams:
    return await asyncio.open_connection(sock=connected, limit=HEAD_BYTES)


class Guard:
    """*resolve* is asked once a connection; nobody else is. *dial* opens it."""

    def __init__(
        self, rules: Rules, *, bounds: Bounds | None = None, resolve: Resolve = look_up, dial: Dial = dial
    ) -> None:
        self.rules, self._bounds = rules, bounds or Bounds()
        self._resolve, self._dial = resolve, dial

    @asynccontextmanager
    async def admit(self, on_trouble: Callable[[Trouble], None]) -> AsyncIterator[Pass]:
        """A port for one job. Leaving ends every connection that came through it."""
        given = Pass(self._bounds, on_trouble)

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task of our own: the one that asyncio would make logs its cancellation as an error.
            task = asyncio.get_running_loop().create_task(self._serve(given, reader, writer))
            given.open.add(task)
            task.add_done_callback(given.open.discard)
            task.add_done_callback(lambda _: _shut(given, writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        given.port = server.sockets[0].getsockname()[1]
        try:
            yield given
        finally:
            server.close()
            for task in list(given.open):
                task.cancel()
            await asyncio.gather(*given.open, return_exceptions=True)

    async def check(self, url: str) -> None:
        """Raise `TargetNotAllowed` for a URL that is closed by itself, in the time that every refusal takes, and `HostUnreachable`
        for a name without an open address, whether it exists or not."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._bounds.connect_seconds):
                await self._addresses(self.rules.target(url))
        except TargetNotAllowed:
            await _hold(began)
            raise
        except TimeoutError as error:
            raise HostUnreachable("it could not be reached") from error

    async def _serve(self, given: Pass, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not given.take_connection():
            return
        with suppress(BadHead, OSError, TimeoutError):  # whose connection it is sees it end
            async with asyncio.timeout(given.bounds.head_seconds):
                request = await read_request(reader)
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(given.bounds.connect_seconds):
                    target, upstream = await self._reach(request)
            except TargetNotAllowed:
                given.tell(Trouble.BLOCKED)  # first, so that nobody sees the answer who does not know why
                await _hold(began)
                writer.write(REFUSAL)
                await writer.drain()
                return
            except (HostUnreachable, TimeoutError):
                # In a tunnel no answer of ours can be taken for the page's; without one, only silence cannot.
                if request.tunnel:
                    writer.write(_NOT_REACHED)
                    await writer.drain()
                return
            try:
                if request.tunnel:
                    writer.write(_TUNNEL)
                    await _both(given, (reader, writer), upstream)
                else:
                    await _pass_on(given, request, target, (reader, writer), upstream)
            finally:
                upstream[1].close()

    async def _reach(self, request: Request) -> tuple[NetworkTarget, Streams]:
        target = self.rules.target(f"http://{request.authority}/")
        for address in (await self._addresses(target))[:_TRIES]:
            try:
                return target, await self._dial(address, target.port)
            except OSError:
                continue
        raise HostUnreachable("it could not be reached")

    async def _addresses(self, target: NetworkTarget) -> list[str]:
        """Return the addresses of *target*, all of them open.

        A name that leads to a closed address is answered like a name that does not exist: the difference would tell a caller
        which names there are inside.
        """
        began = asyncio.get_running_loop().time()
        try:
            return await open_addresses(
                target, self._resolve, lambda one: self.rules.admits(target.host, one, target.port)
            )
        except (TargetNotAllowed, HostUnreachable):
            await _hold(began, NAME_SECONDS)
            raise HostUnreachable("it could not be reached") from None


def _shut(given: Pass, writer: asyncio.StreamWriter) -> None:
    """What is on its way still arrives, unless it is too much as it is."""
    if given.trouble is Trouble.TOO_MUCH:
        writer.transport.abort()
    else:
        writer.close()


async def _hold(began: float, every: float = REFUSAL_SECONDS) -> None:
    """Sleep until the next multiple of *every* seconds since *began*."""
    took = asyncio.get_running_loop().time() - began
    await asyncio.sleep(max(1, math.ceil(took / every)) * every - took)


async def _pass_on(
    given: Pass, request: Request, target: NetworkTarget, page: Streams, server: Streams
) -> None:
    """One request, one answer. What follows on the same connection is not read: it would not have been judged."""
    left = request.length
    server[1].write(request.to_origin(target.authority))
    while left > 0:
        chunk = await page[0].read(min(left, _CHUNK))
        if not chunk or not given.take_up(len(chunk)):
            return
        left -= len(chunk)
        server[1].write(chunk)
        await server[1].drain()
    status = 100
    while 100 <= status < 200 and status != 101:
        status, head = await read_answer(server[0])
        page[1].write(head)
    if status == 101:
        await _both(given, page, server)
    else:
        await _first_of(_move(server[0], page[1], given.take_down), _ended(page[0]))


async def _both(given: Pass, page: Streams, server: Streams) -> None:
    """Bytes in both directions until one side ends."""
    await _first_of(
        _move(page[0], server[1], given.take_up),
        _move(server[0], page[1], given.take_down),
    )


async def _move(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may: Callable[[int], bool]
) -> None:
    while chunk := await reader.read(_CHUNK):
        if not may(len(chunk)):
            return
        writer.write(chunk)
        await writer.drain()


async def _ended(reader: asyncio.StreamReader) -> None:
    while await reader.read(_CHUNK):
        pass


async def _first_of(*ways: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

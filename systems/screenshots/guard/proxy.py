"""The proxy: listens on a port for each job, and connects pages to allowed addresses."""

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
from systems.screenshots.guard.passes import Bounds, Pass, Violation
from systems.screenshots.guard.rules import Rules

#: A refusal is sent this long after the request, or a multiple of it, however long the decision took.
REFUSAL_SECONDS = 0.1
#: A name without an open address is answered after a multiple of this, so that the time does not show whether
#: it exists.
NAME_SECONDS = 0.5
_BODY = b"This address is not open.\n"
REFUSAL = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
    % (len(_BODY), _BODY)
)
_NOT_REACHED = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"
_CHUNK = 64 << 10
#: How many addresses of a name are tried, in order.
_TRIES = 3

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Opens a connection to an address, never to a name.
Dial = Callable[[str, int], Awaitable[Streams]]


async def dial(address: str, port: int) -> Streams:
    """Open a connection to *address*."""
    return await asyncio.open_connection(address, port, limit=HEAD_BYTES)


async def streams_of(connected: socket.socket) -> Streams:
    """Return streams for a connected socket."""
    return await asyncio.open_connection(sock=connected, limit=HEAD_BYTES)


class Guard:
    """The proxy. It calls *resolve* once for each connection, and *dial* to open it."""

    def __init__(
        self, rules: Rules, *, bounds: Bounds | None = None, resolve: Resolve = look_up, dial: Dial = dial
    ) -> None:
        self.rules, self._bounds = rules, bounds or Bounds()
        self._resolve, self._dial = resolve, dial

    @asynccontextmanager
    async def admit(self, on_violation: Callable[[Violation], None]) -> AsyncIterator[Pass]:
        """Listen on a new port for one job. Leaving the block ends its connections."""
        job_pass = Pass(self._bounds, on_violation)

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # An explicit task, because the one that asyncio would create logs its cancellation as an error.
            task = asyncio.get_running_loop().create_task(self._serve(job_pass, reader, writer))
            job_pass.open.add(task)
            task.add_done_callback(job_pass.open.discard)
            task.add_done_callback(lambda _: _close(job_pass, writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_BYTES)
        job_pass.port = server.sockets[0].getsockname()[1]
        try:
            yield job_pass
        finally:
            server.close()
            for task in list(job_pass.open):
                task.cancel()
            await asyncio.gather(*job_pass.open, return_exceptions=True)

    async def check(self, url: str) -> None:
        """Check whether *url* may be opened.

        Raises `TargetNotAllowed`, in the time of every refusal, for a closed address, port or scheme, and
        `HostUnreachable` for a name without an open address, whether it exists or not.
        """
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._bounds.connect_seconds):
                await self._addresses(self.rules.target(url))
        except TargetNotAllowed:
            await _wait_for_multiple(began)
            raise
        except TimeoutError as error:
            raise HostUnreachable("the host could not be reached") from error

    async def _serve(
        self, job_pass: Pass, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not job_pass.take_connection():
            return
        with suppress(BadHead, OSError, TimeoutError):  # the client sees the connection close
            async with asyncio.timeout(job_pass.bounds.head_seconds):
                request = await read_request(reader)
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(job_pass.bounds.connect_seconds):
                    target, upstream = await self._reach(request)
            except TargetNotAllowed:
                job_pass.report(
                    Violation.BLOCKED
                )  # before the response, so that the job fails with the right code
                await _wait_for_multiple(began)
                writer.write(REFUSAL)
                await writer.drain()
                return
            except (HostUnreachable, TimeoutError):
                # A 502 to CONNECT cannot be mistaken for the page's response. Otherwise only a closed
                # connection cannot.
                if request.tunnel:
                    writer.write(_NOT_REACHED)
                    await writer.drain()
                return
            try:
                if request.tunnel:
                    writer.write(_TUNNEL)
                    await _relay(job_pass, (reader, writer), upstream)
                else:
                    await _forward(job_pass, request, target, (reader, writer), upstream)
            finally:
                upstream[1].close()

    async def _reach(self, request: Request) -> tuple[NetworkTarget, Streams]:
        target = self.rules.target(f"http://{request.authority}/")
        for address in (await self._addresses(target))[:_TRIES]:
            try:
                return target, await self._dial(address, target.port)
            except OSError:
                continue
        raise HostUnreachable("the host could not be reached")

    async def _addresses(self, target: NetworkTarget) -> list[str]:
        """Return the addresses of *target*, all of which are open. Raises `HostUnreachable`.

        A name that leads to a closed address is answered like an unknown name, because the difference would
        show which names exist inside our network.
        """
        began = asyncio.get_running_loop().time()
        try:
            return await open_addresses(
                target, self._resolve, lambda one: self.rules.admits(target.host, one, target.port)
            )
        except (TargetNotAllowed, HostUnreachable):
            await _wait_for_multiple(began, NAME_SECONDS)
            raise HostUnreachable("the host could not be reached") from None


def _close(job_pass: Pass, writer: asyncio.StreamWriter) -> None:
    """Close the connection after its pending data, or at once if the job exceeded its limits."""
    if job_pass.violation is Violation.TOO_MUCH:
        writer.transport.abort()
    else:
        writer.close()


async def _wait_for_multiple(began: float, every: float = REFUSAL_SECONDS) -> None:
    """Sleep until the next multiple of *every* seconds since *began*."""
    took = asyncio.get_running_loop().time() - began
    await asyncio.sleep(max(1, math.ceil(took / every)) * every - took)


async def _forward(
    job_pass: Pass, request: Request, target: NetworkTarget, page: Streams, server: Streams
) -> None:
    """Forward one request and its response.

    Further requests on the connection are not read, because they would not have been checked.
    """
    remaining = request.length
    server[1].write(request.to_origin(target.authority))
    while remaining > 0:
        chunk = await page[0].read(min(remaining, _CHUNK))
        if not chunk or not job_pass.take_up(len(chunk)):
            return
        remaining -= len(chunk)
        server[1].write(chunk)
        await server[1].drain()
    status = 100
    while 100 <= status < 200 and status != 101:
        status, head = await read_answer(server[0])
        page[1].write(head)
    if status == 101:
        await _relay(job_pass, page, server)
    else:
        await _first_of(_copy(server[0], page[1], job_pass.take_down), _read_to_end(page[0]))


async def _relay(job_pass: Pass, page: Streams, server: Streams) -> None:
    """Copy bytes in both directions until one side closes."""
    await _first_of(
        _copy(page[0], server[1], job_pass.take_up),
        _copy(server[0], page[1], job_pass.take_down),
    )


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, take: Callable[[int], bool]
) -> None:
    while chunk := await reader.read(_CHUNK):
        if not take(len(chunk)):
            return
        writer.write(chunk)
        await writer.drain()


async def _read_to_end(reader: asyncio.StreamReader) -> None:
    while await reader.read(_CHUNK):
        pass


async def _first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

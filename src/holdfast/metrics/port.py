"""The monitoring port of a worker: `/metrics`, `/livez`, `/readyz` and `/maintenance`, and nothing else.

A worker needs no web framework for four paths: it reads the request line and the headers, within limits,
answers and closes the connection. It runs on the worker's own event loop, so an answer to `/livez` shows that
the loop is not blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.engine.engine import Engine
from holdfast.errors import UsageError
from holdfast.health.inputs import not_ready
from holdfast.logging import Log
from holdfast.metrics.metrics import Metrics

log = Log("holdfast.metrics")

#: The most bytes of a request's head, and the most seconds for a whole request.
LONGEST_HEAD, PATIENCE = 8_192, 10.0
PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Port:
    """The HTTP server of the monitoring port."""

    def __init__(self, metrics: Metrics, engine: Callable[[], Awaitable[Engine]]) -> None:
        self._metrics, self._engine = metrics, engine

    @asynccontextmanager
    async def open(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen inside the block, and yield the port number. A *port* of 0 picks a free one.

        Raises:
            UsageError: The port cannot be opened.
        """
        try:
            server = await asyncio.start_server(self._serve, host, port, limit=LONGEST_HEAD)
        except OSError as error:
            why = error.strerror or "cannot listen on it"
            raise UsageError(f"--metrics-port {port} on {host}: {why}; choose another") from None
        bound: int = server.sockets[0].getsockname()[1]
        log.info("metrics_server.started", host=host, port=bound)
        try:
            yield bound
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                status, kind, body = await self._read_and_respond(reader)
                head = (
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, TimeoutError):
            pass  # the client is gone, or does not read
        except Exception:
            log.exception("metrics_server.failed")
        finally:
            writer.close()

    async def _read_and_respond(self, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return 400, PLAIN, b"not a request\n"
        first, *lines = head.decode("latin-1").split("\r\n")
        match first.split(" "):
            case ["GET", target, _]:
                return await self._respond(target.partition("?")[0], _header(lines, "accept"))
            case [_, _, _]:
                return 405, PLAIN, b"only GET\n"
        return 400, PLAIN, b"not a request\n"

    async def _respond(self, path: str, accept: str) -> tuple[int, str, bytes]:
        match path:
            case "/metrics":
                body, kind = await self._metrics.text(accept)
                return 200, kind, body
            case "/livez":
                return 200, PLAIN, b"alive\n"
            case "/readyz":
                why = await not_ready(self._engine)
                return (200, PLAIN, b"ready\n") if why is None else (503, PLAIN, f"{why}\n".encode())
            case "/maintenance":
                lines = [line for health in (await self._engine()).health_lines for line in health()]
                return (
                    200,
                    PLAIN,
                    ("\n".join(lines or ["no maintenance runs in this process"]) + "\n").encode(),
                )
        return 404, PLAIN, b"there are /metrics, /livez, /readyz and /maintenance\n"


def _header(lines: list[str], wanted: str) -> str:
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""

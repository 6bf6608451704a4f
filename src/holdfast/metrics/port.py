"""A worker's own door for those who watch it: `/metrics`, `/livez`, `/readyz`, `/maintenance` on a port, and nothing else.

A worker has no web framework to answer four questions, and needs none: it reads the first line and the headers of a request,
within bounds, answers and hangs up. It runs on the worker's own loop, so that an answer to `/livez` means the loop turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.engine.engine import Engine
from holdfast.engine.health_inputs import not_ready
from holdfast.errors import UsageError
from holdfast.logs import Log
from holdfast.metrics.metrics import Metrics

log = Log("holdfast.metrics")

#: Bytes of a request's head, and seconds for all of it: more is no scraper.
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
    def __init__(self, metrics: Metrics, engine: Callable[[], Awaitable[Engine]]) -> None:
        self._metrics, self._engine = metrics, engine

    @asynccontextmanager
    async def open(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen inside the block; the port (of 0: the one that was found free)."""
        try:
            server = await asyncio.start_server(self._serve, host, port, limit=LONGEST_HEAD)
        except OSError as error:
            why = error.strerror or "it cannot be listened on"
            raise UsageError(f"--metrics-port {port} on {host}: {why}; choose another") from None
        found: int = server.sockets[0].getsockname()[1]
        log.info("metrics_server.started", host=host, port=found)
        try:
            yield found
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                status, kind, body = await self._answer(reader)
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

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return 400, PLAIN, b"not a request\n"
        first, *lines = head.decode("latin-1").split("\r\n")
        match first.split(" "):
            case ["GET", target, _]:
                return await self._look(target.partition("?")[0], _header(lines, "accept"))
            case [_, _, _]:
                return 405, PLAIN, b"only GET\n"
        return 400, PLAIN, b"not a request\n"

    async def _look(self, path: str, accept: str) -> tuple[int, str, bytes]:
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
                lines = [line for tell in (await self._engine()).health_lines for line in tell()]
                return 200, PLAIN, ("\n".join(lines or ["no duties are done here"]) + "\n").encode()
        return 404, PLAIN, b"there are /metrics, /livez, /readyz and /maintenance\n"


def _header(lines: list[str], wanted: str) -> str:
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == wanted:
            return value.strip()
    return ""

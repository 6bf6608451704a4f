"""The service: answers after its latency, or with 503 while it is down, and records each call."""

from __future__ import annotations

import asyncio
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BROKEN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Service:
    """An HTTP service on one port. While it is down it answers 503, so that every call is counted."""

    def __init__(self) -> None:
        self.is_up = True
        self.latency = 0.01
        self.calls: list[tuple[float, bool]] = []  #: the time of each call, and whether the service was up
        self.port = 0

    async def start(self) -> None:
        """Start listening."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server

    def stop(self) -> None:
        """Stop listening."""
        self._server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (line := await reader.readline()).strip():
                while (await reader.readline()).strip():
                    continue
                assert line.startswith(b"GET")
                up = self.is_up
                self.calls.append((time.monotonic(), up))
                await asyncio.sleep(self.latency if up else 0.001)
                writer.write(ANSWER if up else BROKEN)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

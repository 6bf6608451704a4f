"""A server whose connections can be cut on purpose."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


class FaultyProtocol(H11Protocol):
    """uvicorn's protocol, with a way to cut a connection: an application cannot do that by itself."""

    open_transports: dict[tuple[str, int], asyncio.Transport] = {}  # noqa: RUF012 - one server a process

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self.open_transports[self.client] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.client is not None:
            self.open_transports.pop(self.client, None)
        super().connection_lost(exc)


def cut(client: Any) -> None:
    """Reset the connection of *client*, as a crash of the machine or a firewall would."""
    transport = FaultyProtocol.open_transports.get(tuple(client or ()))
    if transport is None:
        return
    raw = transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()

"""Servers in the event loop of a test."""

from __future__ import annotations

import asyncio


async def close(server: asyncio.Server) -> None:
    """Close *server* after each accepted connection has reached its handler.

    asyncio forgets a connection that it accepts while the server closes (CPython #109564). The connection would be found open,
    and fail whatever test runs then.
    """
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in ("accepted", "made", "handled"):
        await asyncio.sleep(0)
    server.close()

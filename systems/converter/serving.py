"""What the gateway and the web app have in common as servers: a socket that listens, and the line that says so."""

from __future__ import annotations

import socket
import sys

import uvicorn


class Server(uvicorn.Server):
    """Says when it serves, and where."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"ready: http://{shown}:{port}", flush=True)


def listen(host: str, port: int, *, name: str) -> socket.socket | None:
    """A listening socket; None where that cannot be, after one line that says why and what to do.

    It names its protocol: asyncio turns off Nagle's delay, 40 ms an answer, only for those that do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        print(f"{name}: port {port} cannot be opened: {reason}; choose another with --port", file=sys.stderr)
        return None
    return listening

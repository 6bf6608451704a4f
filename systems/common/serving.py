"""What the services of the systems have in common as servers: a socket that listens, and the line that says so."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from holdfast import HoldfastError
from holdfast.logs import configure


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


def serve(app: Any, host: str, port: int, *, name: str, **options: Any) -> int:
    """Until told to stop; the exit code."""
    listening = listen(host, port, name=name)
    if listening is None:
        return 1
    server = Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody's word on who the client is
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,
            **options,
        )
    )
    server.run([listening])
    return 0 if server.started else 1


def serve_site(prog: str, description: str | None, make: Callable[[], Any]) -> int:
    """The site of a system, as the environment describes it; what cannot be read there is one line and exit code 2."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    given = parser.parse_args()
    try:
        configure(keep=True)
        site = make()
    except HoldfastError as error:
        print(f"web: {error}", file=sys.stderr)
        return 2
    return serve(site, given.host, given.port, name="web", limit_concurrency=1000)

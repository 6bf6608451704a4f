"""Connections that come in while their server closes, or its loop ends, end with it.

asyncio forgets them (https://github.com/python/cpython/issues/109564): they stay open until they are collected, with a
warning in the middle of whatever test runs then.
"""

import asyncio
import socket
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from typing import Any


def end_late_connections() -> None:
    _end_those_of_a_closed_server()
    _end_those_nobody_began_to_serve()


def _end_those_of_a_closed_server() -> None:
    make = _SelectorSocketTransport.__init__

    def make_or_end(self: Any, loop: Any, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        try:
            make(self, loop, sock, *args, **kwargs)
        except AssertionError:  # of the server, which has closed
            self._sock = None
            sock.close()
            raise

    _SelectorSocketTransport.__init__ = make_or_end


def _end_those_nobody_began_to_serve() -> None:
    """Their task was cancelled before its first step, so nothing in it could close them. Later Pythons do."""
    protocol: Any = asyncio.StreamReaderProtocol
    meet = protocol.connection_made

    def meet_and_watch(self: Any, transport: asyncio.BaseTransport) -> None:
        meet(self, transport)
        if self._task is not None:
            self._task.add_done_callback(lambda task: transport.close() if task.cancelled() else None)

    protocol.connection_made = meet_and_watch

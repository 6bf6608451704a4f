"""Private servers (PostgreSQL, RabbitMQ, Redis) of `make run`, which restarts the ones that exit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from devservices.server import Server
from systems.common.children import Child


@dataclass(slots=True, eq=False)
class ServerChild(Child):
    """A private server as a child that `keep_up` tends."""

    server: Server | None = None

    def start(self) -> None:
        assert self.server is not None
        self.started_at = time.monotonic()
        self.server.launch()
        self.process = self.server.process


#: The private servers of this process, in the order in which they were started.
RUNNING: list[ServerChild] = []


@contextlib.contextmanager
def kept_up(server: Server, *, stop_within: float) -> Iterator[None]:
    """Start *server* and its helpers, let `keep_up` tend them, and stop them at the end.

    Raises `devservices.server.NotStarted`.

    Args:
        stop_within: The seconds after which a server that does not stop is killed. It recovers at its next start.
    """
    server.stop_within = stop_within
    with server:
        children = [
            ServerChild(one.name, (), {}, process=one.process, started_at=time.monotonic(), server=one)
            for one in (*server.helpers, server)
        ]
        RUNNING.extend(children)
        try:
            yield
        finally:
            for child in children:
                RUNNING.remove(child)

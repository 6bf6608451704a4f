"""Extend sessions in the heartbeat thread, on a store of this process: a file, or memory."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.jobs.job import Session


class LocalHeartbeat:
    """The port `HeartbeatConnection`. *beat* extends a session from any thread, and never waits for the event loop."""

    def __init__(self, beat: Callable[[Session], bool]) -> None:
        self.beat = beat

    def close(self) -> None: ...

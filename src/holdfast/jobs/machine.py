"""Protocols for time, randomness, ids and threads. `holdfast.wiring` picks real ones, tests use others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from holdfast.jobs.job import JobId


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """Return the wall-clock time as an aware datetime in UTC."""

    def monotonic(self) -> float:
        """Return seconds of a clock that all processes of this machine share and that cannot be set."""

    def boot_id(self) -> str:
        """Return an id that changes when the machine, and so the monotonic clock, restarts."""

    async def sleep(self, seconds: float) -> None: ...


class Rng(Protocol):
    """A source of random numbers."""

    def random(self) -> float:
        """Return a number in [0, 1)."""


class Ids(Protocol):
    """A source of ids, names and secrets."""

    def job_id(self) -> JobId:
        """Return a new id that cannot be guessed and that grows with time."""

    def worker_name(self) -> str:
        """Return a name for this start of this process that no process has used before."""

    def secret(self) -> bytes:
        """Return 32 bytes that cannot be guessed."""


class Threads(Protocol):
    """A way to start threads."""

    def start(self, name: str, run: Callable[[], None]) -> Callable[[float | None], None]:
        """Run *run* in a daemon thread and return the `join(timeout)` of that thread."""

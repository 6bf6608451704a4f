"""The network limits of one job, and its use of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Violation(StrEnum):
    """The reasons why the guard fails a job."""

    BLOCKED = "blocked"  #: it requested a closed address
    TOO_MUCH = "too_much"  #: it exceeded the limit on bytes or connections


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The network limits of one job.

    The caller limits its duration: leaving the pass ends all connections.
    """

    bytes_down: int = 64 << 20
    bytes_up: int = 8 << 20
    at_a_time: int = 128
    connections: int = 2000
    head_seconds: float = 10.0
    connect_seconds: float = 8.0


class Pass:
    """The network use of one job. Calls *on_violation* for the first violation only."""

    def __init__(self, bounds: Bounds, on_violation: Callable[[Violation], None]) -> None:
        self.bounds, self._on_violation = bounds, on_violation
        self.port = 0  #: where the guard listens for this job alone
        self.violation: Violation | None = None
        self.open: set[asyncio.Task[None]] = set()
        self._connections = self._down = self._up = 0

    def report(self, violation: Violation) -> None:
        """Record a violation."""
        if self.violation is None:
            self.violation = violation
            self._on_violation(violation)

    def take_connection(self) -> bool:
        """Count a new connection, and return whether it is allowed."""
        self._connections += 1
        if self._connections > self.bounds.connections:
            self.report(Violation.TOO_MUCH)
            return False
        return len(self.open) <= self.bounds.at_a_time

    def take_down(self, size: int) -> bool:
        """Count bytes that were received, and return whether they are within the limit."""
        self._down += size
        return self._within(self._down <= self.bounds.bytes_down)

    def take_up(self, size: int) -> bool:
        """Count bytes to send, and return whether they are within the limit."""
        self._up += size
        return self._within(self._up <= self.bounds.bytes_up)

    def _within(self, is_within: bool) -> bool:
        if not is_within:
            self.report(Violation.TOO_MUCH)
        return is_within

"""What one job may use of the network, and what it tried to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Trouble(StrEnum):
    BLOCKED = "blocked"  #: it asked for a place that is closed
    TOO_MUCH = "too_much"  #: it moved more bytes, or opened more connections, than a job may


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of one job. How long it lasts is its owner's to bound: the end of a pass ends every connection."""

    bytes_down: int = 64 << 20
    bytes_up: int = 8 << 20
    at_a_time: int = 128
    connections: int = 2000
    head_seconds: float = 10.0
    connect_seconds: float = 8.0


class Pass:
    """Told once: *on_trouble* hears of the first trouble only."""

    def __init__(self, bounds: Bounds, on_trouble: Callable[[Trouble], None]) -> None:
        self.bounds, self._on_trouble = bounds, on_trouble
        self.port = 0  #: where the guard listens for this job alone
        self.trouble: Trouble | None = None
        self.open: set[asyncio.Task[None]] = set()
        self._connections = self._down = self._up = 0

    def tell(self, trouble: Trouble) -> None:
        if self.trouble is None:
            self.trouble = trouble
            self._on_trouble(trouble)

    def take_connection(self) -> bool:
        self._connections += 1
        if self._connections > self.bounds.connections:
            self.tell(Trouble.TOO_MUCH)
            return False
        return len(self.open) <= self.bounds.at_a_time

    def take_down(self, size: int) -> bool:
        self._down += size
        return self._within(self._down <= self.bounds.bytes_down)

    def take_up(self, size: int) -> bool:
        self._up += size
        return self._within(self._up <= self.bounds.bytes_up)

    def _within(self, within: bool) -> bool:
        if not within:
            self.tell(Trouble.TOO_MUCH)
        return within

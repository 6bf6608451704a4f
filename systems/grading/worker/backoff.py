"""How long a request waits before its next try (G3): doubled each time, spread, and no shorter than the provider asks."""

from __future__ import annotations

from typing import NamedTuple


class Backoff(NamedTuple):
    """All in milliseconds."""

    base: int = 1_000
    jitter: int = 1_000
    cap: int = 300_000

    def after(self, retry: int, chance: float, asked_ms: float | None = None) -> float:
        """The wait before *retry* (counted from 1), *chance* from 0 to 1. What the provider has asked for by
        `Retry-After` is the least; nothing is longer than the cap."""
        wait = self.base * float(1 << min(retry, 40)) + self.jitter * chance
        return min(max(wait, asked_ms or 0.0), float(self.cap))

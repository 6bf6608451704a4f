"""The wait before a retry (G3): it doubles each time, has jitter, and respects the provider's Retry-After."""

from __future__ import annotations

from typing import NamedTuple


class Backoff(NamedTuple):
    """The parameters of the wait, in milliseconds."""

    base: int = 1_000
    jitter: int = 1_000
    cap: int = 300_000

    def after(self, retry: int, chance: float, asked_ms: float | None = None) -> float:
        """Return the wait before a retry.

        Args:
            retry: The number of the retry, from 1.
            chance: A random number from 0 to 1, for the jitter.
            asked_ms: The provider's `Retry-After`. The wait is not shorter, unless the cap is.
        """
        wait = self.base * float(1 << min(retry, 40)) + self.jitter * chance
        return min(max(wait, asked_ms or 0.0), float(self.cap))

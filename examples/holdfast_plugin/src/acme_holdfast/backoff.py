"""A backoff: returns the delay after a failed attempt. Holdfast adds jitter and the cap."""

from __future__ import annotations

from datetime import timedelta

UNIT = timedelta(seconds=5)


def fibonacci(attempt: int) -> timedelta:
    """Return the delay after the failed *attempt*, counted from 1."""
    last, this = 0, 1
    for _ in range(min(attempt, 60) - 1):  # later delays exceed every cap
        last, this = this, last + this
    return UNIT * this

"""A backoff: the delay after the failed attempt of this number. Jitter and cap are Holdfast's own."""

from __future__ import annotations

from datetime import timedelta

UNIT = timedelta(seconds=5)


def fibonacci(attempt: int) -> timedelta:
    last, this = 0, 1
    for _ in range(min(attempt, 60) - 1):  # later ones are above every cap
        last, this = this, last + this
    return UNIT * this

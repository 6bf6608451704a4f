"""Numbers that people set, each checked with one line that says what is allowed."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.duration import Duration, duration, spell
from holdfast.errors import UsageError


def whole(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} is {value!r}; it is a whole number, {least} to {most}")
    return value


def number(name: str, value: object, least: float, most: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} is {value!r}; it is a number, {least:g} to {most:g}")
    return float(value)


def share(name: str, value: object, *, of: str) -> float:
    """A part of a whole that is never nothing: above 0, at most 1."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise UsageError(f"{name} is {value!r}; it is a share of {of}, above 0 and at most 1, e.g. 0.5")
    return float(value)


def span(name: str, value: Duration, least: timedelta, most: timedelta) -> timedelta:
    try:
        found = duration(value)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    if not least <= found <= most:
        raise UsageError(f"{name} is {value!r}; it is a duration, {spell(least)} to {spell(most)}")
    return found

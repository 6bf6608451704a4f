"""Durations as people write them: "30s", "1h30m", "250ms", a `timedelta`, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta

from holdfast.errors import UsageError

Duration = str | int | float | timedelta

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3_600 * 10**6,
    "d": 86_400 * 10**6,
    "w": 604_800 * 10**6,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)", re.ASCII)
#: "1h 30m" has a space between its parts; "1 30m" has one inside a number and is ambiguous.
_SPLIT_NUMBER = re.compile(r"[\d.] +[\d.]")
_LONGEST = timedelta(days=36_500)
#: The longest text that is parsed, and how much of a text an error shows, in characters.
_MOST_READ, _MOST_SHOWN = 60, 80


def duration(value: Duration) -> timedelta:
    """Return *value* as a `timedelta`; raise `UsageError` unless it is a duration of 0 to 100 years."""
    if isinstance(value, timedelta):
        span = value
    elif isinstance(value, str):
        span = _parse(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 3.2e9:
        span = timedelta(seconds=value)
    else:
        raise UsageError(f'{_excerpt(value)} is not a duration; write "30s", "1h30m" or a timedelta')
    if not timedelta() <= span <= _LONGEST:
        raise UsageError(f"{_excerpt(value)} is out of range; a duration is 0 to 100 years")
    return span


def _excerpt(value: object) -> str:
    """Return the start of *value* for an error text: Python cannot print a number of thousands of digits."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    if isinstance(value, str):
        return repr(value[:_MOST_SHOWN]) + "…" * (len(value) > _MOST_SHOWN)
    return f"{value!r:.{_MOST_SHOWN}}"


def _parse(text: str) -> timedelta:
    if len(text) > _MOST_READ:
        raise UsageError(
            f"{_excerpt(text)} has {len(text):,} characters; a duration has at most {_MOST_READ}"
        )
    packed = "" if _SPLIT_NUMBER.search(text) else text.replace(" ", "")
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", packed, re.ASCII):
        return timedelta(seconds=float(packed))
    parts = _PART.findall(packed)
    if not parts or "".join(number + unit for number, unit in parts) != packed:
        raise UsageError(f'{_excerpt(text)} is not a duration; write "30s", "1h30m" or a timedelta')
    try:
        return timedelta(microseconds=sum(round(float(number) * _UNITS[unit]) for number, unit in parts))
    except OverflowError:
        raise UsageError(f"{_excerpt(text)} is out of range; a duration is 0 to 100 years") from None


def optional(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value)


def format_duration(span: timedelta) -> str:
    """Return the shortest exact spelling of *span*: `duration(format_duration(span)) == span`."""
    left = round(span / timedelta(microseconds=1))
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, left = divmod(left, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"

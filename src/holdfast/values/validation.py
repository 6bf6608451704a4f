"""Check the values of options.

Each function returns the checked value, or raises a `UsageError` that names the option and says what is
allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.values.duration import Duration, duration, format_duration

T = TypeVar("T")


def whole(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} is {value!r}; it is a whole number, {least} to {most}")
    return value


def number(name: str, value: object, least: float, most: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} is {value!r}; it is a number, {least:g} to {most:g}")
    return float(value)


def share(name: str, value: object, *, of: str) -> float:
    """Check a share of *of*: a number above 0 and at most 1."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise UsageError(f"{name} is {value!r}; it is a share of {of}, above 0 and at most 1, e.g. 0.5")
    return float(value)


def span(name: str, value: Duration, least: timedelta, most: timedelta) -> timedelta:
    try:
        found = duration(value)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    if not least <= found <= most:
        raise UsageError(
            f"{name} is {value!r}; it is a duration, {format_duration(least)} to {format_duration(most)}"
        )
    return found


def any_span(name: str, value: Duration) -> timedelta:
    """Check a duration of any length."""
    try:
        return duration(value)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def optional_span(name: str, value: Duration | None) -> timedelta | None:
    """Check a duration of any length; None stays None."""
    return None if value is None else any_span(name, value)


def moment(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise UsageError(f"{name} is {value!r:.60}; it is a datetime with a time zone")
    if value.tzinfo is None:
        raise UsageError(f"{name} has no time zone; pass an aware datetime, e.g. datetime.now(timezone.utc)")
    return value


def word(name: str, value: object) -> str:
    """Check a name that every store can keep: 1 to 500 printable characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= 500 or not value.isprintable():
        raise UsageError(f"{name} is {value!r:.60}; it is a text of 1 to 500 printable characters")
    return value


def by_name(name: str, value: object, example: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"{name} is {value!r:.60}; it gives values by name, e.g. {example}")
    return value


def typed(name: str, value: object, kind: type[T], what: str) -> T:
    """Check that *value* is of type *kind*; *what* is how the error describes an allowed value."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} is {value!r:.60}; it is {what}")
    return value


def several(name: str, value: object, kind: type[T], what: str) -> tuple[T, ...]:
    """Check a list, tuple or set whose values are all of type *kind*; refuse a single value or a string."""
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(
        isinstance(one, kind) for one in value
    ):
        raise UsageError(f"{name} is {value!r:.80}; it is a list of {what}")
    return tuple(value)


def a_function(name: str, value: object, what: str) -> Any:
    if not callable(value):
        raise UsageError(f"{name} is {value!r:.60}; it is {what}")
    return value

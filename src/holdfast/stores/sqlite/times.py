"""Moments and durations as whole microseconds, the way SQLite keeps them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(when: datetime) -> int:
    return (when - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def span(duration: timedelta) -> int:
    return duration // _MICROSECOND


def maybe_span(duration: timedelta | None) -> int | None:
    return None if duration is None else span(duration)


def maybe_duration(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)

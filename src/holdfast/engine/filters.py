"""Filters as people write them: which jobs, which dead letters. Also what an operation keeps of its filter."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from holdfast.domain.job import DeadLetterFilter, JobFilter
from holdfast.domain.moves import State
from holdfast.errors import UsageError

Moment = datetime | str
F = TypeVar("F", JobFilter, DeadLetterFilter)


def job_filter(
    *,
    state: str | Collection[str] | None = None,
    task: str | Collection[str] | None = None,
    queue: str | Collection[str] | None = None,
    owner: str | None = None,
    tag: str | None = None,
    args: dict[str, Any] | None = None,
    ids: str | Collection[str] | None = None,
    created_after: Moment | None = None,
    created_before: Moment | None = None,
    error_code: str | None = None,
    key: str | None = None,
) -> JobFilter:
    try:
        states = tuple(State(value) for value in _many(state))
    except ValueError as error:
        raise UsageError(f"{error}; a state is one of {', '.join(State)}") from None
    return _checked(
        JobFilter(
            states=states,
            tasks=_many(task),
            queues=_many(queue),
            owner=owner,
            tag=tag,
            args=args or {},
            ids=_many(ids),
            created_after=_moment("created_after", created_after),
            created_before=_moment("created_before", created_before),
            error_code=error_code,
            key=key,
        )
    )


def dead_letter_filter(
    *,
    ids: str | Collection[str] | None = None,
    task: str | Collection[str] | None = None,
    queue: str | Collection[str] | None = None,
    reason: str | Collection[str] | None = None,
    fingerprint: str | None = None,
    owner: str | None = None,
    died_after: Moment | None = None,
    died_before: Moment | None = None,
) -> DeadLetterFilter:
    return _checked(
        DeadLetterFilter(
            ids=_many(ids),
            tasks=_many(task),
            queues=_many(queue),
            reasons=_many(reason),
            fingerprint=fingerprint,
            owner=owner,
            died_after=_moment("died_after", died_after),
            died_before=_moment("died_before", died_before),
        )
    )


def plain(where: dict[str, Any]) -> dict[str, Any]:
    """The words of a filter as JSON keeps them: only what is said, moments as text."""
    return {name: _plain(value) for name, value in where.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | dict) else [str(one) for one in value]


def _many(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _moment(name: str, value: Moment | None) -> datetime | None:
    """Without a zone it is UTC."""
    if value is None:
        return None
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f'{name} is {value!r}; write a moment, e.g. "2026-02-03T14:00:00Z"') from None


def _checked(where: F) -> F:
    """A database cannot be asked for what it cannot hold."""
    for text in _texts([getattr(where, name) for name in where.__slots__]):
        if "\0" in text or (not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)):
            raise UsageError(f"{text[:40]!r} is not text that could be stored; nothing matches it")
    return where


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)

"""Filters as people write them: which jobs, which dead letters. Also what an operation keeps of its filter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from holdfast.domain.job import DeadLetterFilter, JobFilter
from holdfast.domain.moves import State
from holdfast.domain.suggest import suggest
from holdfast.domain.validation import by_name
from holdfast.errors import UsageError

Moment = datetime | str
P = ParamSpec("P")
F = TypeVar("F", JobFilter, DeadLetterFilter)


def _by_name(make: Callable[P, F]) -> Callable[P, F]:
    """A word that is none of its arguments is refused with a line that tells which there are."""
    names = list(inspect.signature(make).parameters)

    @wraps(make)
    def read(*args: P.args, **where: P.kwargs) -> F:
        if unknown := where.keys() - set(names):
            told = ", ".join(name[:60] for name in sorted(unknown)[:5])
            raise UsageError(f"no filter {told}; {suggest(min(unknown)[:60], names)}")
        return make(*args, **where)

    return read


@_by_name
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
    internal: bool = False,
) -> JobFilter:
    try:
        states = tuple(State(value) for value in _many("state", state))
    except ValueError as error:
        raise UsageError(f"{error}; a state is one of {', '.join(State)}") from None
    return _checked(
        JobFilter(
            states=states,
            tasks=_many("task", task),
            queues=_many("queue", queue),
            owner=_one("owner", owner),
            tag=_one("tag", tag),
            args=dict(by_name("args", {} if args is None else args, '{"year": 2026}')),
            ids=_many("ids", ids),
            created_after=_moment("created_after", created_after),
            created_before=_moment("created_before", created_before),
            error_code=_one("error_code", error_code),
            key=_one("key", key),
            internal=_yes("internal", internal),
        )
    )


@_by_name
def dead_letter_filter(
    *,
    ids: str | Collection[str] | None = None,
    task: str | Collection[str] | None = None,
    queue: str | Collection[str] | None = None,
    code: str | Collection[str] | None = None,
    fingerprint: str | None = None,
    owner: str | None = None,
    died_after: Moment | None = None,
    died_before: Moment | None = None,
    internal: bool = False,
) -> DeadLetterFilter:
    return _checked(
        DeadLetterFilter(
            ids=_many("ids", ids),
            tasks=_many("task", task),
            queues=_many("queue", queue),
            codes=_many("code", code),
            fingerprint=_one("fingerprint", fingerprint),
            owner=_one("owner", owner),
            died_after=_moment("died_after", died_after),
            died_before=_moment("died_before", died_before),
            internal=_yes("internal", internal),
        )
    )


def plain(where: dict[str, Any]) -> dict[str, Any]:
    """The words of a filter as JSON keeps them: only what is said, moments as text."""
    return {name: _plain(value) for name, value in where.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | dict | bool) else [str(one) for one in value]


def _many(name: str, value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    many = (value,) if isinstance(value, str) else value
    if not isinstance(many, Collection) or not all(isinstance(one, str) for one in many):
        raise UsageError(f"{name} is {value!r:.60}; it is a text, or a list of texts")
    return tuple(many)


def _yes(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.60}; it is True or False")
    return value


def _one(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name} is {value!r:.60}; it is a text")
    return value


def _moment(name: str, value: Moment | None) -> datetime | None:
    """Without a zone it is UTC."""
    if value is None:
        return None
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
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

"""Filters as people write them: which jobs, which dead letters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar, Unpack

from holdfast.errors import UsageError
from holdfast.jobs.job import DeadLetterFilter, JobFilter
from holdfast.jobs.moves import State
from holdfast.tasks.payload import encode
from holdfast.values.suggest import suggest
from holdfast.values.validation import by_name

Moment = datetime | str
F = TypeVar("F", JobFilter, DeadLetterFilter)


class JobFilters(TypedDict, total=False):
    """Which jobs. Several filters narrow each other; of several values of one filter, one must match."""

    state: str | Collection[str] | None
    task: str | Collection[str] | None
    queue: str | Collection[str] | None
    owner: str | None
    tag: str | None
    args: Mapping[str, Any] | None  #: arguments with these values
    ids: str | Collection[str] | None
    created_after: Moment | None
    created_before: Moment | None
    error_code: str | None
    key: str | None
    internal: bool  #: with the engine's own jobs


class DeadLetterFilters(TypedDict, total=False):
    """Which dead letters. Several filters narrow each other; of several values of one filter, one must match."""

    ids: str | Collection[str] | None
    task: str | Collection[str] | None
    queue: str | Collection[str] | None
    code: str | Collection[str] | None
    fingerprint: str | None
    owner: str | None
    died_after: Moment | None
    died_before: Moment | None
    internal: bool  #: with those of the engine's own jobs


class AnyFilters(JobFilters, DeadLetterFilters, total=False):
    """The filters of an operation: those of jobs or of dead letters, as its action says."""


def job_filter(**filters: Unpack[JobFilters]) -> JobFilter:
    """Return the filter that these words say. Raises `UsageError` for a word or a value that is none."""
    _known(filters, JobFilters)
    try:
        states = tuple(State(value) for value in _many(filters, "state"))
    except ValueError as error:
        raise UsageError(f"{error}; a state is one of {', '.join(State)}") from None
    given = filters.get("args")
    args = dict(by_name("args", {} if given is None else given, '{"year": 2026}'))
    chosen = _storable(
        JobFilter(
            states=states,
            tasks=_many(filters, "task"),
            queues=_many(filters, "queue"),
            owner=_one(filters, "owner"),
            tag=_one(filters, "tag"),
            args=args,
            ids=_many(filters, "ids"),
            created_after=_moment(filters, "created_after"),
            created_before=_moment(filters, "created_before"),
            error_code=_one(filters, "error_code"),
            key=_one(filters, "key"),
            internal=_switch(filters, "internal"),
        )
    )
    encode(chosen.args, what="args")  # NaN would become null, and select other jobs
    return chosen


def dead_letter_filter(**filters: Unpack[DeadLetterFilters]) -> DeadLetterFilter:
    """Return the filter that these words say. Raises `UsageError` for a word or a value that is none."""
    _known(filters, DeadLetterFilters)
    return _storable(
        DeadLetterFilter(
            ids=_many(filters, "ids"),
            tasks=_many(filters, "task"),
            queues=_many(filters, "queue"),
            codes=_many(filters, "code"),
            fingerprint=_one(filters, "fingerprint"),
            owner=_one(filters, "owner"),
            died_after=_moment(filters, "died_after"),
            died_before=_moment(filters, "died_before"),
            internal=_switch(filters, "internal"),
        )
    )


def jobs_matching(where: JobFilter | None, filters: JobFilters) -> JobFilter:
    """Return *where*, or the filter that the words say. Raises `UsageError` for a *where* that is none."""
    return job_filter(**filters) if where is None else _checked(where, JobFilter)


def dead_letters_matching(where: DeadLetterFilter | None, filters: DeadLetterFilters) -> DeadLetterFilter:
    """Return *where*, or the filter that the words say. Raises `UsageError` for a *where* that is none."""
    return dead_letter_filter(**filters) if where is None else _checked(where, DeadLetterFilter)


def _checked(where: F, kind: type[F]) -> F:
    if not isinstance(where, kind):
        raise UsageError(f"{where!r:.60} is no filter; say which by name: ids=…, task=…")
    return where


def plain(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return *filters* as JSON keeps them: without those that are None, moments as text."""
    return {name: _plain(value) for name, value in filters.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | dict | bool) else [str(one) for one in value]


def _known(filters: Mapping[str, Any], words: type) -> None:
    names = list(words.__annotations__)
    if unknown := sorted(filters.keys() - set(names)):
        listed = ", ".join(name[:60] for name in unknown[:5])
        raise UsageError(f"no filter {listed}; {suggest(unknown[0][:60], names)}")


def _many(filters: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    value = filters.get(name)
    if value is None:
        return ()
    many = (value,) if isinstance(value, str) else value
    if not isinstance(many, Collection) or not all(isinstance(one, str) for one in many):
        raise UsageError(f"{name} is {value!r:.60}; it is a text, or a list of texts")
    return tuple(many)


def _switch(filters: Mapping[str, Any], name: str) -> bool:
    value = filters.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.60}; it is True or False")
    return value


def _one(filters: Mapping[str, Any], name: str) -> str | None:
    value = filters.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name} is {value!r:.60}; it is a text")
    return value


def _moment(filters: Mapping[str, Any], name: str) -> datetime | None:
    """Return the moment of a filter; one without a zone is UTC."""
    value = filters.get(name)
    if value is None:
        return None
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f'{name} is {value!r}; write a moment, e.g. "2026-02-03T14:00:00Z"') from None


def _storable(where: F) -> F:
    """Refuse text that no database can hold."""
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

"""Assertions about jobs. They are synchronous, because an assertion without its `await` would always pass."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.app import Holdfast
from holdfast.engine.filters import job_filter
from holdfast.engine.ports import Store
from holdfast.errors import UnknownTask, UsageError
from holdfast.jobs.job import DeadLetter, DeadLetterFilter, JobRow
from holdfast.tasks.payload import decode_any, encode
from holdfast.tasks.task import Task

T = TypeVar("T")

#: Arguments to look for: some of them by name, or all of them by position as in a call.
Args = Mapping[str, Any] | tuple[Any, ...] | None
_ANY: Any = object()
_MOST = 10_000


def assert_enqueued(
    app: Holdfast, task: Task[Any, Any] | str, args: Args = None, *, count: int | None = None, **where: Any
) -> list[JobRow]:
    """Assert that such a job was enqueued, whatever its state is now. Return the matches, oldest first.

    Args:
        app: The app under test.
        task: The task, or its name.
        args: The arguments to look for. `None` matches any.
        count: The exact number of matching jobs. `None` means at least one.
        where: Further filters: `state=`, `queue=`, `owner=`, `tag=`, as in `app.jobs.list(…)`.

    Raises:
        AssertionError: The number of matching jobs differs. Its message lists the jobs of the task.
    """
    __tracebackhide__ = True
    name, wanted = _resolve(app, task, args)
    jobs = _jobs(app, name)
    chosen = {row.id for row in _jobs(app, name, args=wanted, **where)}
    matching = [row for row in jobs if row.id in chosen]
    _check(
        matching, count, f"{_call(name, wanted)} enqueued{_filters_text(where)}", [_line(row) for row in jobs]
    )
    return matching


def assert_completed(
    app: Holdfast,
    task: Task[Any, Any] | str,
    args: Args = None,
    *,
    result: Any = _ANY,
    count: int | None = None,
    **where: Any,
) -> list[JobRow]:
    """Assert that such a job is complete, with this *result* if given. Return the matches, oldest first.

    The other arguments are those of `assert_enqueued`.
    """
    __tracebackhide__ = True
    name, wanted = _resolve(app, task, args)
    matching = _jobs(app, name, args=wanted, state="complete", **where)
    if result is not _ANY:
        stored = _stored(result)
        matching = [row for row in matching if row.result == stored]
    suffix = _filters_text(where if result is _ANY else {"result": result, **where})
    _check(
        matching, count, f"{_call(name, wanted)} complete{suffix}", [_line(row) for row in _jobs(app, name)]
    )
    return matching


def assert_dead(
    app: Holdfast,
    task: Task[Any, Any] | str,
    args: Args = None,
    *,
    code: str | None = None,
    count: int | None = None,
) -> list[DeadLetter]:
    """Assert that such a job is a dead letter, with this *code* if given. Return the matching dead letters.

    The other arguments are those of `assert_enqueued`.
    """
    __tracebackhide__ = True
    name, wanted = _resolve(app, task, args)
    where = DeadLetterFilter(tasks=(name,), codes=(code,) if code else ())
    letters = _run_now(_store(app).queries.dead_letters(where, after=None, limit=_MOST))
    matching = [letter for letter in letters if wanted.items() <= letter.payload.items()]
    suffix = _filters_text({"code": code} if code else {})
    _check(matching, count, f"{_call(name, wanted)} dead{suffix}", [_line(row) for row in _jobs(app, name)])
    return matching


def _check(matching: Sequence[object], count: int | None, what: str, lines: list[str]) -> None:
    __tracebackhide__ = True
    if len(matching) == count or (count is None and matching):
        return
    expected = "at least one job" if count is None else f"{count} job{'s' * (count != 1)}"
    shown = "".join(f"\n  {line}" for line in lines[:20]) or " none"
    more = f"\n  … and {len(lines) - 20} more" if len(lines) > 20 else ""
    raise AssertionError(
        f"expected {expected}: {what}; found {len(matching)}. Jobs of this task:{shown}{more}"
    )


def _line(row: JobRow) -> str:
    failure = f" {row.error_code}: {row.error_message}" if row.error_code else ""
    if row.last_failure and not row.error_code:
        failure = f" after {row.last_failure['code']}, due {row.run_at:%H:%M:%S}"
    result = f" → {row.result!r}" if row.result is not None else ""
    return f"{row.state} {_call(row.task, row.payload)}{result} (attempt {row.attempt} of {row.max_attempts}){failure}"


def _call(name: str, args: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items()) or '…'})"


def _filters_text(where: Mapping[str, Any]) -> str:
    return "".join(f", {key} {value!r}" for key, value in where.items())


def _resolve(app: Holdfast, task: Task[Any, Any] | str, args: Args) -> tuple[str, dict[str, Any]]:
    name = task if isinstance(task, str) else task.name
    if name not in app.tasks:
        raise UnknownTask(name, app.tasks)
    signature = app.tasks[name].signature
    given = signature.bind(args, {}) if isinstance(args, tuple) else dict(args or {})
    unknown = given.keys() - signature.names
    if unknown:
        raise UsageError(f"{name}() has no argument {', '.join(sorted(unknown))}")
    return name, {key: _stored(value) for key, value in given.items()}


def _stored(value: Any) -> Any:
    """Return *value* as it comes back from a store."""
    return decode_any(encode(value, what="the expected value"))


def _jobs(app: Holdfast, name: str, **where: Any) -> list[JobRow]:
    page = _run_now(_store(app).queries.jobs(job_filter(task=name, **where), after=None, limit=_MOST))
    return page.rows[::-1]


def _store(app: Holdfast) -> Store:
    return app.runtime.closed_engine().store


def _run_now(read: Coroutine[Any, Any, T]) -> T:
    """Return the result of a read that never waits: memory and SQLite stores answer without an event loop."""
    try:
        read.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    read.close()
    raise UsageError("assertions read memory and SQLite stores only; elsewhere use `await app.jobs.list(…)`")

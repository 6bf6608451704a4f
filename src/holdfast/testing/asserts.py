"""Assertions about jobs. They are plain calls, because an assertion whose `await` was forgotten always passes."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.app import Holdfast
from holdfast.domain.job import DeadLetter, DeadLetterFilter, JobRow
from holdfast.engine.filters import job_filter
from holdfast.engine.payload import decode_any, encode
from holdfast.engine.ports import Store
from holdfast.engine.tasks import Task
from holdfast.errors import UnknownTask, UsageError

T = TypeVar("T")

#: Arguments to look for: by name (others may be there too), or by place as in a call.
Args = Mapping[str, Any] | tuple[Any, ...] | None
_ANY: Any = object()
_MOST = 10_000


def assert_enqueued(
    app: Holdfast, task: Task[Any, Any] | str, args: Args = None, *, count: int | None = None, **where: Any
) -> list[JobRow]:
    """A job like this was enqueued, whatever became of it; exactly *count* of them if given. The jobs, oldest first.

    *where*: `state=`, `queue=`, `owner=`, `tag=`, as in `app.jobs(…)`.
    """
    __tracebackhide__ = True
    name, wanted = _wanted(app, task, args)
    jobs = _jobs(app, name)
    chosen = {row.id for row in _jobs(app, name, args=wanted, **where)}
    found = [row for row in jobs if row.id in chosen]
    _judge(found, count, f"{_call(name, wanted)} enqueued{_told(where)}", [_line(row) for row in jobs])
    return found


def assert_completed(
    app: Holdfast,
    task: Task[Any, Any] | str,
    args: Args = None,
    *,
    result: Any = _ANY,
    count: int | None = None,
    **where: Any,
) -> list[JobRow]:
    """A job like this is complete, with this *result* if given. The jobs, oldest first."""
    __tracebackhide__ = True
    name, wanted = _wanted(app, task, args)
    found = _jobs(app, name, args=wanted, state="complete", **where)
    if result is not _ANY:
        stored = _stored(result)
        found = [row for row in found if row.result == stored]
    told = _told(where if result is _ANY else {"result": result, **where})
    _judge(found, count, f"{_call(name, wanted)} complete{told}", [_line(row) for row in _jobs(app, name)])
    return found


def assert_dead(
    app: Holdfast,
    task: Task[Any, Any] | str,
    args: Args = None,
    *,
    code: str | None = None,
    count: int | None = None,
) -> list[DeadLetter]:
    """A job like this ended as a dead letter, with this error *code* if given. The letters."""
    __tracebackhide__ = True
    name, wanted = _wanted(app, task, args)
    where = DeadLetterFilter(tasks=(name,), codes=(code,) if code else ())
    letters = _at_once(_store(app).dead_letters(where, after=None, limit=_MOST))
    found = [letter for letter in letters if wanted.items() <= letter.payload.items()]
    told = _told({"code": code} if code else {})
    _judge(found, count, f"{_call(name, wanted)} dead{told}", [_line(row) for row in _jobs(app, name)])
    return found


def _judge(found: Sequence[object], count: int | None, what: str, there: list[str]) -> None:
    __tracebackhide__ = True
    if len(found) == count or (count is None and found):
        return
    asked = "at least one job" if count is None else f"{count} job{'s' * (count != 1)}"
    shown = "".join(f"\n  {line}" for line in there[:20]) or " none"
    more = f"\n  … and {len(there) - 20} more" if len(there) > 20 else ""
    raise AssertionError(f"expected {asked}: {what}; found {len(found)}. Jobs of this task:{shown}{more}")


def _line(row: JobRow) -> str:
    end = f" {row.error_code}: {row.error_message}" if row.error_code else ""
    if row.last_failure and not row.error_code:
        end = f" after {row.last_failure['code']}, due {row.run_at:%H:%M:%S}"
    result = f" → {row.result!r}" if row.result is not None else ""
    return f"{row.state} {_call(row.task, row.payload)}{result} (attempt {row.attempt} of {row.max_attempts}){end}"


def _call(name: str, args: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items()) or '…'})"


def _told(where: Mapping[str, Any]) -> str:
    return "".join(f", {key} {value!r}" for key, value in where.items())


def _wanted(app: Holdfast, task: Task[Any, Any] | str, args: Args) -> tuple[str, dict[str, Any]]:
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
    """*value* as it comes back from a store."""
    return decode_any(encode(value, what="the expected value"))


def _jobs(app: Holdfast, name: str, **where: Any) -> list[JobRow]:
    page = _at_once(_store(app).jobs(job_filter(task=name, **where), after=None, limit=_MOST))
    return page.rows[::-1]


def _store(app: Holdfast) -> Store:
    return app._sync_engine().store


def _at_once(reading: Coroutine[Any, Any, T]) -> T:
    """The answer of a read that does not wait: memory and SQLite answer without an event loop."""
    try:
        reading.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    reading.close()
    raise UsageError("assertions look at memory and SQLite stores; elsewhere use `await app.jobs(…)`")

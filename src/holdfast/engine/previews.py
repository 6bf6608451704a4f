"""What an operation would do: how many jobs, which are skipped and why, a sample, and what it means for the queue.

It changes nothing and reads a bounded number of jobs, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.engine.batches import selected, skip_reason
from holdfast.engine.engine import Engine
from holdfast.engine.manual_retry import patch_row
from holdfast.engine.operation import RUN_AGAIN, BatchAction, Operation
from holdfast.jobs.internal import is_internal
from holdfast.jobs.job import DeadLetter, DeadLetterFilter, JobFilter, JobId, JobRow
from holdfast.jobs.moves import State
from holdfast.resilience import pacing
from holdfast.tasks.payload import decode_any, encode

#: How many jobs are counted, and how many pages of a rare filter are read for that.
MOST_COUNTED = 10_000
_PAGES = 20
#: How many of them are checked as they will be when they are moved, which reads their arguments, and how many at a time.
MOST_CHECKED = 100
_TOGETHER = 20
#: How many are shown.
SAMPLE = 5
#: The most characters of a value that are shown.
_LONGEST = 2000
#: How many completed jobs tell how fast a queue is.
_COMPLETED = 100

AnyRow = JobRow | DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedJob:
    """One of the jobs that match."""

    id: JobId
    task: str
    queue: str
    state: State
    owner: str | None
    error_code: str | None
    skipped: str | None = None  #: the reason why it would be skipped
    before: dict[str, Any] = field(default_factory=dict)  #: the arguments that a patch names
    after: dict[str, Any] = field(default_factory=dict)  #: the same arguments as the patch leaves them


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an operation would do if it began now."""

    action: BatchAction
    matched: int  #: counted up to `MOST_COUNTED`
    is_capped: bool  #: whether more may match than were counted
    skipped: dict[str, int]  #: how many of them would be skipped, by reason
    checked: int  #: for how many of them the arguments were checked too
    sample: list[PreviewedJob]
    queues: list[str]  #: where their jobs go
    waiting: int  #: how many jobs are due or running there now
    lasts: timedelta | None  #: how long it takes to move them at the given rate; None: no rate is given
    drains_in: (
        timedelta | None
    )  #: how long the queues need for all that, at the pace of their last jobs; None: unknown


async def preview(engine: Engine, operation: Operation) -> Preview:
    """Return what *operation* would do. Its jobs may move meanwhile, so the operation itself decides again."""
    rows, is_capped = await _rows(engine, operation)
    skipped = {row.id: reason for row in rows if (reason := _skipped_by_state(operation, row)) is not None}
    checked, edits = await _check(engine, operation, [row for row in rows if row.id not in skipped])
    skipped |= {job_id: reason for job_id, reason in checked.items() if reason is not None}
    doable = len(rows) - len(skipped)
    to_queue = operation.options.get("to_queue")
    queues = sorted({row.queue for row in rows} if to_queue is None else {to_queue})
    lasts = pacing.duration(doable, rate=operation.rate, ramp_from=operation.options.get("ramp_from"))
    waiting = await _waiting(engine, queues)
    runs = operation.action in RUN_AGAIN
    return Preview(
        action=operation.action,
        matched=len(rows),
        is_capped=is_capped,
        skipped=dict(Counter(skipped.values()).most_common()),
        checked=len(checked),
        sample=[_shown(row, skipped.get(row.id), edits.get(row.id)) for row in rows[:SAMPLE]],
        queues=queues,
        waiting=waiting,
        lasts=lasts,
        drains_in=await _drains_in(engine, queues, waiting + doable, lasts) if runs and doable else None,
    )


async def _rows(engine: Engine, operation: Operation) -> tuple[list[AnyRow], bool]:
    """Return the first jobs that match, and whether there may be more."""
    where, queries = selected(operation), engine.store.queries
    if isinstance(where, DeadLetterFilter):
        letters = await queries.dead_letters(where, after=None, limit=MOST_COUNTED + 1, contents=False)
        return list(letters[:MOST_COUNTED]), len(letters) > MOST_COUNTED
    rows: list[AnyRow] = []
    after: str | None = None
    for _ in range(_PAGES):
        page = await queries.jobs(where, after=after, limit=MOST_COUNTED - len(rows), contents=False)
        rows += page.rows
        after = page.next
        if after is None or len(rows) >= MOST_COUNTED:
            break
    return rows, after is not None


def _skipped_by_state(operation: Operation, row: AnyRow) -> str | None:
    """Return why the state of a job forbids to move it, or None."""
    if is_internal(row.task) and (operation.options.get("to_queue") or operation.options.get("patch")):
        return "forbidden"
    if operation.action is not BatchAction.RETRY or not isinstance(row, JobRow) or row.is_retryable:
        return None
    return "processing" if row.state is State.PROCESSING else "due"


async def _check(
    engine: Engine, operation: Operation, rows: Sequence[AnyRow]
) -> tuple[dict[JobId, str | None], dict[JobId, tuple[dict[str, Any], dict[str, Any]]]]:
    """Return why some of the first *rows* would be skipped by their arguments, and what a patch makes of them."""
    reasons: dict[JobId, str | None] = {}
    changes: dict[JobId, tuple[dict[str, Any], dict[str, Any]]] = {}
    patch = operation.options.get("patch")
    checks = any(task.policy.check is not None for task in engine.tasks.values())
    if operation.action not in RUN_AGAIN or (patch is None and not checks):
        return reasons, changes
    ids = [row.id for row in rows[:MOST_CHECKED]]
    for start in range(0, len(ids), _TOGETHER):
        for row in await _with_arguments(engine, operation, ids[start : start + _TOGETHER]):
            try:
                if patch is not None:
                    changes[row.id] = _change(engine, row, patch)
                elif row.task in engine.tasks:
                    engine.tasks[row.task].check_again(row.owner, row.payload)
                reasons[row.id] = None
            except Exception as error:  # a check may raise anything
                reasons[row.id] = skip_reason(error)
    return reasons, changes


async def _with_arguments(engine: Engine, operation: Operation, ids: Sequence[JobId]) -> Sequence[AnyRow]:
    queries, most = engine.store.queries, len(ids)
    if operation.action is BatchAction.RETRY:
        where = JobFilter(ids=tuple(ids), internal=True)
        return (await queries.jobs(where, after=None, limit=most)).rows
    return await queries.dead_letters(DeadLetterFilter(ids=tuple(ids), internal=True), after=None, limit=most)


def _change(engine: Engine, row: AnyRow, patch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments that a patch names, before and after it."""
    before = row.payload if isinstance(row.payload, dict) else {}
    after = decode_any(patch_row(engine, row, patch).payload)
    # All of its arguments, and not those that differ: that would tell whether a guess at a hidden value is right.
    return _named(before, patch), _named(after, patch)


def _named(arguments: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _short(arguments[name]) for name in patch if name in arguments}


def _short(value: Any) -> Any:
    """Return the value, or the begin of a long text. Other long values are left out: cut, their secrets could not be hidden."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[:_LONGEST] + "…"
    length = len(encode(value, what="an argument"))
    return value if length <= _LONGEST else f"… ({length:,} characters of JSON)"


def _shown(
    row: AnyRow, skipped: str | None, change: tuple[dict[str, Any], dict[str, Any]] | None
) -> PreviewedJob:
    before, after = change or ({}, {})
    state, code = (row.state, row.error_code) if isinstance(row, JobRow) else (State.FAILED, row.code)
    return PreviewedJob(
        id=row.id,
        task=row.task,
        queue=row.queue,
        state=state,
        owner=row.owner,
        error_code=code,
        skipped=skipped,
        before=before,
        after=after,
    )


async def _waiting(engine: Engine, queues: Sequence[str]) -> int:
    """Return how many jobs are due or running in these queues."""
    stats = await engine.store.queries.stats(MOST_COUNTED)
    return sum(one.waiting + one.active for lane, one in stats.lines.items() if lane.queue in queues)


async def _drains_in(
    engine: Engine, queues: Sequence[str], jobs: int, lasts: timedelta | None
) -> timedelta | None:
    """Return how long these queues need for this many jobs, at the pace of the last ones that completed there."""
    where = JobFilter(states=(State.COMPLETE,), queues=tuple(queues))
    page = await engine.store.queries.jobs(where, after=None, limit=_COMPLETED, contents=False)
    ends = sorted(row.finished_at for row in page.rows if row.finished_at is not None)
    if len(ends) < 2 or ends[0] == ends[-1]:
        return None
    each = (ends[-1] - ends[0]) / (len(ends) - 1)
    return max(each * jobs, lasts or timedelta())

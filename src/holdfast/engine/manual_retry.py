"""A person's retry of one job: what it forgets, what it is called with, what it takes from quotas, and the attempt that it may
take from a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Charge
from holdfast.engine.ports import Reclaim, StuckAttempt
from holdfast.engine.recovery import stuck_failure
from holdfast.errors import Changed, Conflict, Forbidden, UnknownJob, UsageError
from holdfast.jobs.internal import is_internal
from holdfast.jobs.job import DeadLetter, Edit, JobId, JobRow
from holdfast.jobs.moves import Kind
from holdfast.jobs.precondition import Precondition
from holdfast.jobs.verdict import Bury, RetryAfter
from holdfast.tasks.payload import decode_any
from holdfast.tasks.task import Task


async def job_row(engine: Engine, job_id: JobId) -> JobRow:
    """Return the job's row. Raises `UnknownJob` when there is none."""
    row = await engine.store.queries.job(job_id)
    if row is None:
        raise UnknownJob(job_id)
    return row


async def retry_job(
    engine: Engine,
    job_id: JobId,
    *,
    by: str,
    from_step: str | None,
    args: Mapping[str, object] | None,
    priority: int | None,
    patch: Mapping[str, Any] | None = None,
    precondition: Precondition,
) -> int:
    """Queue the job now and return its queue position.

    Raises:
        Conflict: Its state does not allow it.
        QuotaExceeded: Its owner, or the organization of its owner, has used up its quota of manual retries.
    """
    forget = None if from_step is None else await _steps_from(engine, job_id, from_step)
    if patch is not None:
        edit = await patched(engine, job_id, patch)
    elif args is not None:
        edit = await _edit(engine, job_id, args)
    else:
        edit = None
        await check_again(engine, job_id)
    charges = await retry_charges(engine, job_id)

    async def retry(stuck: StuckAttempt | None) -> int:
        return await engine.store.retry(
            job_id,
            by,
            kind=Kind.manual_retry,
            forget=forget,
            edit=edit,
            priority=priority,
            precondition=precondition,
            stuck=stuck,
            charges=charges,
        )

    try:
        position = await retry(None)
    except Changed:
        raise
    except Conflict:
        # A stuck attempt is taken from its worker in the same move: of two callers, one is refused.
        limits = engine.recovery.stuck_limits()
        found = await engine.store.stuck(limits, 1, ids=[job_id]) if limits else []
        if not found:
            raise
        [attempt] = found
        failure = stuck_failure(attempt, limits[attempt.lane.task])
        position = await retry(StuckAttempt(attempt.lease, failure))
        is_last = attempt.attempt >= attempt.max_attempts
        verdict = Bury(failure) if is_last else RetryAfter(timedelta(), failure)
        engine.observers.reclaimed([(attempt, Reclaim(attempt.lease, verdict, crashed=False))], 1)
    engine.observers.retried(Kind.manual_retry)
    engine.moved(job_id)
    return position


async def retry_charges(engine: Engine, job_id: JobId) -> Sequence[Charge]:
    """Return what a manual retry of this job takes from quotas. Read nothing if no quota limits manual retries."""
    if not engine.admission.limits_manual_retries:
        return ()
    row = await job_row(engine, job_id)
    if row.owner is None or is_internal(row.task):
        return ()
    return engine.admission.manual_retry_charges(row.owner)


async def check_again(engine: Engine, job_id: JobId) -> None:
    """Ask the check of its task about a job that is to run again.

    Its arguments were accepted under other rules, or were never checked (`reject`).
    """
    if any(task.policy.check for task in engine.tasks.values()):
        row = await job_row(engine, job_id)
        if row.task in engine.tasks:
            engine.tasks[row.task].check_again(row.owner, row.payload)


async def _edit(engine: Engine, job_id: JobId, args: Mapping[str, object]) -> Edit:
    """Return the call with other arguments, checked as `enqueue` does."""
    row = await job_row(engine, job_id)
    task = _editable(engine, row)
    return _checked(
        task, row, task.signature.dump(task.signature.bind((), args), engine.settings.payload_limit)
    )


async def patched(engine: Engine, job_id: JobId, patch: Mapping[str, Any]) -> Edit:
    """Return the call with its arguments changed by a JSON merge patch, checked as `enqueue` does."""
    return patch_row(engine, await job_row(engine, job_id), patch)


def patch_row(engine: Engine, row: JobRow | DeadLetter, patch: Mapping[str, Any]) -> Edit:
    """Return the call of *row*, which has its arguments, changed by a JSON merge patch; see `patched`."""
    task = _editable(engine, row)
    return _checked(task, row, task.patch(row.payload, patch, engine.settings.payload_limit))


def _editable(engine: Engine, row: JobRow | DeadLetter) -> Task[Any, Any]:
    """Return the task of a job that is to have other arguments."""
    if is_internal(row.task):
        raise Forbidden(
            f"job {row.id} is one of the engine's own; it runs again as it is, with its own arguments"
        )
    if row.task not in engine.tasks:
        raise UsageError(
            f"task {row.task!r} is not one of this app, so other arguments cannot be checked; retry it as it is, or in its app"
        )
    return engine.tasks[row.task]


def _checked(task: Task[Any, Any], row: JobRow | DeadLetter, payload: str) -> Edit:
    """Return the edit that gives the job of *row* another payload, if the task's check allows it."""
    task.check(row.owner, payload)
    before, after = row.payload if isinstance(row.payload, dict) else {}, decode_any(payload)
    names = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    return Edit(payload, task.policy.version, tuple(names))


async def _steps_from(engine: Engine, job_id: JobId, name: str) -> Collection[str]:
    names = list(await engine.store.queries.steps(job_id))
    if name not in names:
        raise UsageError(f"job {job_id} has no recorded step {name!r}; it has: {', '.join(names) or 'none'}")
    return names[names.index(name) :]

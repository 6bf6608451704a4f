"""Carry out operations, a step at a time: which jobs are next, and what is done to each of them.

A step without a pace moves the next jobs that match. Repeated after a crash it does nothing twice: jobs that were moved do not
match any more.

A step with a pace also watches the jobs that it has moved until they end, and decides by their outcome (`resilience.pacing`).
It stores which jobs it is about to move first. After a crash the next process moves the same ones, under the same token, so that
each is moved once and its outcome is counted once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from holdfast.engine.dead_letters import redrive_one
from holdfast.engine.engine import Engine
from holdfast.engine.filters import dead_letter_filter, job_filter
from holdfast.engine.jobs import Jobs
from holdfast.engine.manual_retry import retry_job
from holdfast.engine.namespace import OpenEngine
from holdfast.engine.operation import BatchAction, Operation, OperationBatch, OperationState, Progress
from holdfast.engine.ports import Transaction
from holdfast.engine.tables import operations
from holdfast.errors import Conflict, Forbidden, HoldfastError, PayloadError, Refused, StoreError, UsageError
from holdfast.jobs.job import DeadLetterFilter, JobFilter, JobId, JobRow
from holdfast.jobs.moves import FINISHED, State
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.logging import Log
from holdfast.resilience import pacing
from holdfast.resilience.pacing import Pace

log = Log("holdfast.engine")

#: For how long a process takes an operation: longer than a slow batch.
SPAN = timedelta(seconds=30)
#: The actions on jobs. The others are on dead letters.
_ON_JOBS = (BatchAction.RETRY, BatchAction.CANCEL)
_NOTHING = timedelta()


class OperationStep(NamedTuple):
    """What an operation has become by one step, which is to be recorded."""

    operation: Operation
    rest: timedelta = _NOTHING  #: for how long no process should go on
    end: Progress | None = None  #: how it ends
    reason: str | None = None  #: why it is stopped


class _Choice(NamedTuple):
    """The next jobs of an operation."""

    ids: Sequence[JobId]
    cursor: str | None
    is_last: bool


async def next_step(engine: Engine, operation: Operation, most: int) -> OperationStep | None:
    """Do the next step of an operation that this process has taken, with at most *most* jobs.

    Returns None if another process has taken it since, or if it has ended. Raises `UsageError` if it cannot be carried out.
    """
    if "patch" in operation.options and not engine.tasks.keys() >= set(selected(operation).tasks):
        return OperationStep(
            operation, pacing.WATCH_EVERY
        )  # a process that has the task checks the arguments
    if operation.pace is None:
        return await _plain_step(engine, operation, most)
    return await _paced_step(engine, operation, operation.pace, most)


async def _plain_step(engine: Engine, operation: Operation, most: int) -> OperationStep:
    batch = await do_batch(engine, operation, pacing.batch(operation.rate, most))
    moved = _with_totals(replace(operation, cursor=batch.cursor), batch.done, batch.skipped)
    return _resting(moved, batch.done, operation.rate, Progress.DONE if batch.is_last else None)


async def _paced_step(engine: Engine, operation: Operation, pace: Pace, most: int) -> OperationStep | None:
    if not operation.state.chosen:
        operation = replace(operation, state=await _observed(engine, pace, operation))
        state = operation.state
        if state.course.too_many is not None and not state.is_last:
            return OperationStep(operation, end=Progress.STOPPED, reason=state.course.too_many)
        allowed = 0 if state.is_last else pacing.allowed(pace, state.course, most)
        if not allowed:
            is_done = state.is_last and not state.watched
            return OperationStep(operation, pacing.WATCH_EVERY, Progress.DONE if is_done else None)
        choice = await _choose(engine, operation, allowed)
        state = replace(state, chosen=tuple(choice.ids), is_last=choice.is_last)
        recorded = await operations.advance(
            engine.store, replace(operation, cursor=choice.cursor, state=state), SPAN
        )
        if recorded is None:
            return None
        operation = recorded
    state, course = operation.state, operation.state.course
    moved, skipped = await _do_each(engine, operation, [JobId(one) for one in state.chosen])
    state = replace(
        state,
        chosen=(),
        watched=(*state.watched, *moved),
        course=replace(course, moved=course.moved + len(moved)),
    )
    operation = _with_totals(replace(operation, state=state), len(moved), skipped)
    in_canary = course.ended < pace.canary
    return _resting(operation, len(moved), None if in_canary else pacing.current_rate(pace, course))


async def _observed(engine: Engine, pace: Pace, operation: Operation) -> OperationState:
    """Return the state of an operation after the jobs that have ended since were counted, with its rate as it is now."""
    state = operation.state
    outcomes: dict[str, bool] = {}
    if state.watched:
        ids = [JobId(one) for one in state.watched]

        async def look(transaction: Transaction) -> dict[str, State]:
            return {one.id: one.state for one in await transaction.jobs(ids)}

        states = await engine.store.transact(look, reads=True)
        # A job that is gone was removed by retention, which removes jobs that have ended.
        ended = {one: states.get(one, State.COMPLETE) for one in state.watched}
        outcomes = {one: found is State.FAILED for one, found in ended.items() if found in FINISHED}
    course = pacing.observe(pace, state.course, outcomes.values())
    return replace(
        state,
        watched=tuple(one for one in state.watched if one not in outcomes),
        course=pacing.grow(pace, course, operation.updated_at),
    )


def _with_totals(operation: Operation, done: int, skipped: Mapping[str, int]) -> Operation:
    """Return the operation after *done* more jobs were moved and others were *skipped*."""
    reasons = Counter(operation.state.skipped) + Counter(skipped)
    return replace(
        operation,
        done=operation.done + done,
        refused=operation.refused + sum(skipped.values()),
        state=replace(operation.state, skipped=dict(reasons)),
    )


def _resting(
    operation: Operation, moved: int, rate: float | None, end: Progress | None = None
) -> OperationStep:
    """Return the step after which the operation rests for as long as its rate asks."""
    now = operation.updated_at
    due = pacing.due_after(moved, rate, due=operation.state.due, now=now)
    operation = replace(operation, state=replace(operation.state, due=due))
    return OperationStep(operation, max(_NOTHING, due - now), end)


# -- which jobs ---------------------------------------------------------------------------------------------------------
async def do_batch(engine: Engine, operation: Operation, most: int) -> OperationBatch:
    """Do the next *most* jobs that match."""
    if operation.action in engine.batches:
        return await engine.batches[operation.action](engine, operation)
    choice = await _choose(engine, operation, most)
    moved, skipped = await _do_each(engine, operation, choice.ids)
    return OperationBatch(len(moved), skipped, choice.cursor, choice.is_last)


async def _choose(engine: Engine, operation: Operation, most: int) -> _Choice:
    """Return the next *most* jobs that match, of those that were there when the operation began."""
    chosen = selected(operation)
    if isinstance(chosen, JobFilter):
        page = await engine.store.queries.jobs(chosen, after=operation.cursor, limit=most, contents=False)
        ids = [row.id for row in page.rows if _was_there(row, operation)]
        return _Choice(ids, page.next, page.next is None)
    # Jobs that die after the operation began are left out, or one that fails at once would be redriven for ever.
    latest = operation.created_at + timedelta(microseconds=1)
    before = latest if chosen.died_before is None else min(latest, chosen.died_before)
    letters = await engine.store.queries.dead_letters(
        replace(chosen, died_before=before), after=operation.cursor, limit=most, contents=False
    )
    ids = [letter.id for letter in letters]
    return _Choice(ids, ids[-1] if ids else operation.cursor, len(ids) < most)


def selected(operation: Operation) -> JobFilter | DeadLetterFilter:
    """Return the filter of an operation. Raises `UsageError` if it cannot be read."""
    if operation.action in _ON_JOBS:
        return job_filter(**operation.filter)
    return dead_letter_filter(**operation.filter)


def _was_there(row: JobRow, operation: Operation) -> bool:
    """Return whether the job was queued before the operation began; otherwise it is new, or was retried since."""
    return row.queued_at <= operation.created_at


# -- what is done to each -----------------------------------------------------------------------------------------------
async def _do_each(
    engine: Engine, operation: Operation, ids: Sequence[JobId]
) -> tuple[list[JobId], Counter[str]]:
    """Do all at once, so that stores can write them together. Return those that were moved, and why others were not."""
    verb = _verb(engine, operation)
    calls = [_do_one(verb, job_id, operation) for job_id in ids]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    moved, skipped = list[JobId](), Counter[str]()
    for job_id, answer in zip(ids, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        if answer is None:
            moved.append(job_id)
        else:
            skipped[answer] += 1
    return moved, skipped


async def _do_one(
    verb: Callable[[JobId], Awaitable[object]], job_id: JobId, operation: Operation
) -> str | None:
    """Move one job. Return why it was not moved, or None."""
    try:
        await verb(job_id)
    except StoreError:
        raise
    except HoldfastError as error:
        return skip_reason(error)
    except Exception as error:  # of a hook: it refuses this job, not the others
        reason = f"{type(error).__name__}: {error}"
        log.warning("operation.job_refused", operation=operation.id, job_id=job_id, reason=reason)
        return skip_reason(error)
    return None


def skip_reason(error: Exception) -> str:
    """Return the word for why a job was not moved."""
    match error:
        case Conflict(twin=str()):
            return "duplicate"
        case Conflict():
            return "changed"
        case Forbidden():
            return "forbidden"
        case Refused():
            return error.code
        case PayloadError():
            return "arguments"
    return "refused"


def _verb(engine: Engine, operation: Operation) -> Callable[[JobId], Awaitable[object]]:
    by, reason = operation.by, operation.options.get("reason", "")
    patch = operation.options.get("patch")
    # Without a pace, jobs that were moved before a crash are not chosen again, and need no token.
    precondition = (
        UNCONDITIONAL if operation.pace is None else Precondition(token=f"operation {operation.id}")
    )
    match operation.action:
        case BatchAction.RETRY:
            return lambda job_id: retry_job(
                engine, job_id, by=by, patch=patch, from_step=None, args=None, priority=None,
                precondition=precondition,
            )  # fmt: skip
        case BatchAction.CANCEL:
            return lambda job_id: Jobs(OpenEngine(engine)).cancel(job_id, by=by, reason=reason)
        case BatchAction.DISCARD:
            return lambda job_id: engine.store.discard(job_id, by, reason)
        case BatchAction.REDRIVE:
            queue = operation.options.get("to_queue")
            return lambda job_id: redrive_one(
                engine, job_id, by=by, to_queue=queue, patch=patch, precondition=precondition
            )
        case BatchAction.REPLAY:
            raise UsageError("this process cannot replay webhooks; run a worker of the app")

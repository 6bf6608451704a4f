"""Operations: what is to be done to everything that matches a filter, and one batch of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast.domain.job import DeadLetterFilter, JobFilter, JobId, JobRow
from holdfast.domain.moves import State
from holdfast.domain.operation import (
    BY_FILTER,
    FASTEST,
    SLOWEST,
    Operation,
    OperationAction,
    OperationBatch,
    Progress,
)
from holdfast.domain.validation import number, word
from holdfast.engine.engine import Engine
from holdfast.engine.filters import dead_letter_filter, job_filter, plain
from holdfast.errors import HoldfastError, StoreError, UsageError
from holdfast.logs import Log

log = Log("holdfast.engine")

#: Which jobs a verb is for, where no state is named.
_MEANT = {OperationAction.RETRY: [State.FAILED], OperationAction.CANCEL: [State.QUEUED, State.PROCESSING]}
_POSSIBLE = {
    OperationAction.RETRY: {State.FAILED, State.CANCELLED, State.QUEUED, State.PROCESSING},
    OperationAction.CANCEL: {State.QUEUED, State.PROCESSING},
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What somebody wants to be done, as they said it."""

    action: str
    filter: dict[str, Any]
    by: str
    rate: float | None = None
    to_queue: str | None = None
    reason: str = ""
    owner: str | None = None
    token: str | None = None  #: names the wish: said again under it, it is the same operation


async def begin(engine: Engine, plan: Plan, *, dry_run: bool = False) -> Operation:
    """Keep it, for the duty to do; `UsageError` when it cannot be done."""
    operation = _operation(engine, plan)
    counted = replace(operation, matched=await _count(engine, operation))
    if dry_run:
        return replace(counted, progress=Progress.DONE)
    return await engine.store.begin_operation(counted)


def _operation(engine: Engine, plan: Plan) -> Operation:
    if plan.action not in BY_FILTER:
        raise UsageError(f"{plan.action!r} is no operation; it is one of {', '.join(BY_FILTER)}")
    action = OperationAction(plan.action)
    _filter(action, plan.filter)  # as it was said: what is wrong with it is told in those words
    filters = plain(plan.filter)
    if plan.rate is not None:
        number("rate", plan.rate, SLOWEST, FASTEST)
    if plan.to_queue is not None:
        word("to_queue", plan.to_queue)
    if plan.to_queue is not None and action is not OperationAction.REDRIVE:
        raise UsageError("to_queue is for redrive; what is retried stays in its queue")
    if action is OperationAction.DISCARD and not plan.reason:
        raise UsageError("say why these dead letters are discarded: reason=…")
    if plan.owner is not None:
        if filters.get("owner", plan.owner) != plan.owner:
            raise UsageError("these jobs belong to another owner")
        filters["owner"] = plan.owner
    chosen = _filter(action, filters)
    if isinstance(chosen, JobFilter):
        if not chosen.states:
            filters["state"] = [str(state) for state in _MEANT[action]]
        elif not _POSSIBLE[action].issuperset(chosen.states):
            possible = ", ".join(state for state in State if state in _POSSIBLE[action])
            raise UsageError(f"{action} is for jobs that are {possible}; not for {', '.join(chosen.states)}")
    now = engine.clock.now()
    options = {"to_queue": plan.to_queue, "reason": plan.reason}
    return Operation(
        id=plan.token or engine.ids.job_id(),
        action=action,
        filter=filters,
        by=plan.by,
        options={name: value for name, value in options.items() if value},
        rate=plan.rate,
        owner=plan.owner,
        created_at=now,
        updated_at=now,
    )


def _filter(action: OperationAction, filters: dict[str, Any]) -> JobFilter | DeadLetterFilter:
    return job_filter(**filters) if action in _MEANT else dead_letter_filter(**filters)


async def _count(engine: Engine, operation: Operation) -> int:
    chosen = _filter(operation.action, operation.filter)
    if isinstance(chosen, JobFilter):
        return await engine.store.count(chosen)
    return await engine.store.count_dead_letters(chosen)


async def do_batch(engine: Engine, operation: Operation, most: int) -> OperationBatch:
    """The next of what matches. Done again after a crash it does nothing twice: what has its new life since is passed by."""
    if operation.action in engine.batches:
        return await engine.batches[operation.action](engine, operation)
    chosen = _filter(operation.action, operation.filter)
    if isinstance(chosen, JobFilter):
        page = await engine.store.jobs(chosen, after=operation.cursor, limit=most, contents=False)
        ids = [row.id for row in page.rows if _was_there(row, operation)]
        return OperationBatch(*await _do_each(engine, operation, ids), page.next, page.next is None)
    # Who dies after the operation began is not meant by it: else what fails at once would go round and round.
    latest = operation.created_at + timedelta(microseconds=1)
    before = latest if chosen.died_before is None else min(latest, chosen.died_before)
    letters = await engine.store.dead_letters(
        replace(chosen, died_before=before), after=operation.cursor, limit=most, contents=False
    )
    ids = [letter.id for letter in letters]
    return OperationBatch(*await _do_each(engine, operation, ids), ids[-1] if ids else None, len(ids) < most)


def _was_there(row: JobRow, operation: Operation) -> bool:
    """Whether it was queued before the operation began: it is new otherwise, or was retried since."""
    return row.queued_at <= operation.created_at


async def _do_each(engine: Engine, operation: Operation, ids: Sequence[JobId]) -> tuple[int, int]:
    """All at once, so that stores that can write them together; how many were done, and how many refused."""
    verb = _verb(engine, operation)
    calls = [_do_one(verb, job_id, operation) for job_id in ids]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    done = answers.count(True)
    return done, len(ids) - done


async def _do_one(verb: Callable[[JobId], Awaitable[object]], job_id: JobId, operation: Operation) -> bool:
    try:
        await verb(job_id)
    except StoreError:
        raise
    except HoldfastError:
        return False
    except Exception as error:  # a hook's: it stands for this one job, not for the others
        reason = f"{type(error).__name__}: {error}"
        log.warning("operation.job_refused", operation=operation.id, job_id=job_id, reason=reason)
        return False
    return True


def _verb(engine: Engine, operation: Operation) -> Callable[[JobId], Awaitable[object]]:
    by, reason = operation.by, operation.options.get("reason", "")
    match operation.action:
        case OperationAction.RETRY:
            return lambda job_id: engine.retry(job_id, by=by)
        case OperationAction.CANCEL:
            return lambda job_id: engine.cancel(job_id, by=by, reason=reason)
        case OperationAction.DISCARD:
            return lambda job_id: engine.store.discard(job_id, by, reason)
        case OperationAction.REDRIVE:
            queue = operation.options.get("to_queue")
            return lambda job_id: engine.redrive_one(job_id, by=by, queue=queue)
        case OperationAction.REPLAY:
            raise UsageError("this process knows no replays")

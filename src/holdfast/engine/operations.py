"""`app.operations`: retry, cancel, redrive or discard everything that matches a filter. Workers carry it out in batches."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Unpack

from holdfast.engine.dead_letters import redrive_one
from holdfast.engine.engine import Engine
from holdfast.engine.filters import AnyFilters, dead_letter_filter, job_filter, plain
from holdfast.engine.jobs import Jobs
from holdfast.engine.namespace import Namespace, OpenEngine
from holdfast.engine.operation import (
    BY_FILTER,
    FASTEST,
    SLOWEST,
    BatchAction,
    Operation,
    OperationBatch,
    Progress,
)
from holdfast.engine.tables import operations
from holdfast.errors import HoldfastError, StoreError, UnknownOperation, UsageError
from holdfast.jobs.job import DeadLetterFilter, JobFilter, JobId, JobRow
from holdfast.jobs.moves import State
from holdfast.jobs.retention import Retention
from holdfast.logging import Log
from holdfast.values.duration import Duration, optional
from holdfast.values.validation import number, whole, word

log = Log("holdfast.engine")

#: Which jobs an action is for, where no state is given.
_MEANT = {BatchAction.RETRY: [State.FAILED], BatchAction.CANCEL: [State.QUEUED, State.PROCESSING]}
_POSSIBLE = {
    BatchAction.RETRY: {State.FAILED, State.CANCELLED, State.QUEUED, State.PROCESSING},
    BatchAction.CANCEL: {State.QUEUED, State.PROCESSING},
}


class Operations(Namespace):
    """Work on all jobs, or all dead letters, that match a filter."""

    async def begin(
        self,
        action: str,
        *,
        by: str = "api",
        rate: float | None = None,
        to_queue: str | None = None,
        reason: str = "",
        for_owner: str | None = None,
        dry_run: bool = False,
        token: str | None = None,
        **filters: Unpack[AnyFilters],
    ) -> Operation:
        """Begin to `retry` or `cancel` all jobs that match, or to `redrive` or `discard` all dead letters that match.

        Without `state=`, failed jobs are retried, and queued and processing jobs are cancelled.

        Args:
            action: "retry", "cancel", "redrive" or "discard".
            by: Who begins it; the events record it.
            rate: At most this many jobs a second.
            to_queue: Redrive into this queue.
            reason: Why; required to discard.
            for_owner: The operation belongs to this owner and reaches no jobs of others.
            dry_run: Begin nothing; only count what matches.
            token: An id that names this call. Repeated under it, it is the same operation.
            filters: Which jobs (see `JobFilters`) or dead letters (see `DeadLetterFilters`).

        Returns the operation, with the number that `matched`. Raises `UsageError` for what cannot be done.
        """
        engine = await self._engine()
        plan = _Plan(action, dict(filters), by, rate, to_queue, reason, for_owner, token)
        operation = _operation(engine, plan)
        counted = replace(operation, matched=await _count(engine, operation))
        if dry_run:
            return replace(counted, progress=Progress.DONE)
        return await operations.add(engine.store, counted)

    async def list(self, *, limit: int = 50) -> builtins.list[Operation]:
        """Return operations, newest first. Those that ended more than 30 days ago are forgotten."""
        return await operations.newest((await self._engine()).store, whole("limit", limit, 1, 10_000))

    async def get(self, operation_id: str) -> Operation:
        """Return the operation as it is now. Raises `UnknownOperation` when there is none."""
        store = (await self._engine()).store
        found = await operations.get(store, operation_id) if isinstance(operation_id, str) else None
        if found is None:
            raise UnknownOperation(operation_id)
        return found

    async def cancel(self, operation_id: str) -> Operation:
        """Stop an operation, and return its last state. What it has done stays done."""
        await operations.end((await self._engine()).store, operation_id, Progress.CANCELLED)
        return await self.get(operation_id)

    async def purge(
        self,
        *,
        results: Duration | None = None,
        jobs: Duration | None = None,
        events: Duration | None = None,
        task: str | None = None,
    ) -> int:
        """Remove results, finished jobs and events that were kept this long, now, and return how many rows were removed.

        With *task*, those of one task. Retention (`Holdfast(retention=…)`) does the same all the time.
        """
        keep = Retention(optional(results), optional(jobs), optional(events))
        return await (await self._engine()).recovery.purge(keep, task)


class _Plan(NamedTuple):
    action: str
    filter: dict[str, Any]
    by: str
    rate: float | None
    to_queue: str | None
    reason: str
    owner: str | None
    token: str | None


def _operation(engine: Engine, plan: _Plan) -> Operation:
    if plan.action not in BY_FILTER:
        raise UsageError(f"{plan.action!r} is no operation; it is one of {', '.join(BY_FILTER)}")
    action = BatchAction(plan.action)
    _filter(action, plan.filter)  # as it was given, so that an error quotes those words
    filters = plain(plan.filter)
    if plan.rate is not None:
        number("rate", plan.rate, SLOWEST, FASTEST)
    if plan.to_queue is not None:
        word("to_queue", plan.to_queue)
    if plan.to_queue is not None and action is not BatchAction.REDRIVE:
        raise UsageError("to_queue is for redrive; what is retried stays in its queue")
    if action is BatchAction.DISCARD and not plan.reason:
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


def _filter(action: BatchAction, filters: dict[str, Any]) -> JobFilter | DeadLetterFilter:
    return job_filter(**filters) if action in _MEANT else dead_letter_filter(**filters)


async def _count(engine: Engine, operation: Operation) -> int:
    chosen = _filter(operation.action, operation.filter)
    if isinstance(chosen, JobFilter):
        return await engine.store.queries.count(chosen)
    return await engine.store.queries.count_dead_letters(chosen)


async def do_batch(engine: Engine, operation: Operation, most: int) -> OperationBatch:
    """Do the next *most* jobs that match. Repeated after a crash it does nothing twice: jobs that were retried are left out."""
    if operation.action in engine.batches:
        return await engine.batches[operation.action](engine, operation)
    chosen = _filter(operation.action, operation.filter)
    if isinstance(chosen, JobFilter):
        page = await engine.store.queries.jobs(chosen, after=operation.cursor, limit=most, contents=False)
        ids = [row.id for row in page.rows if _was_there(row, operation)]
        return OperationBatch(*await _do_each(engine, operation, ids), page.next, page.next is None)
    # Jobs that die after the operation began are left out, or one that fails at once would be redriven for ever.
    latest = operation.created_at + timedelta(microseconds=1)
    before = latest if chosen.died_before is None else min(latest, chosen.died_before)
    letters = await engine.store.queries.dead_letters(
        replace(chosen, died_before=before), after=operation.cursor, limit=most, contents=False
    )
    ids = [letter.id for letter in letters]
    return OperationBatch(*await _do_each(engine, operation, ids), ids[-1] if ids else None, len(ids) < most)


def _was_there(row: JobRow, operation: Operation) -> bool:
    """Return whether the job was queued before the operation began; otherwise it is new, or was retried since."""
    return row.queued_at <= operation.created_at


async def _do_each(engine: Engine, operation: Operation, ids: Sequence[JobId]) -> tuple[int, int]:
    """Do all at once, so that stores can write them together. Return how many were done and how many refused."""
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
    except Exception as error:  # of a hook: it refuses this job, not the others
        reason = f"{type(error).__name__}: {error}"
        log.warning("operation.job_refused", operation=operation.id, job_id=job_id, reason=reason)
        return False
    return True


def _verb(engine: Engine, operation: Operation) -> Callable[[JobId], Awaitable[object]]:
    by, reason = operation.by, operation.options.get("reason", "")
    match operation.action:
        case BatchAction.RETRY:
            return lambda job_id: Jobs(OpenEngine(engine)).retry(job_id, by=by)
        case BatchAction.CANCEL:
            return lambda job_id: Jobs(OpenEngine(engine)).cancel(job_id, by=by, reason=reason)
        case BatchAction.DISCARD:
            return lambda job_id: engine.store.discard(job_id, by, reason)
        case BatchAction.REDRIVE:
            queue = operation.options.get("to_queue")
            return lambda job_id: redrive_one(engine, job_id, by=by, to_queue=queue)
        case BatchAction.REPLAY:
            raise UsageError("this process cannot replay webhooks; run a worker of the app")

"""`app.operations`: retry, cancel, redrive or discard everything that matches a filter. Workers carry it out in batches."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from holdfast.engine.batches import selected
from holdfast.engine.engine import Engine
from holdfast.engine.filters import AnyFilters, plain
from holdfast.engine.namespace import Namespace
from holdfast.engine.operation import (
    BY_FILTER,
    FASTEST,
    RUN_AGAIN,
    SLOWEST,
    BatchAction,
    Operation,
    Progress,
)
from holdfast.engine.permissions import must_not_be_internal
from holdfast.engine.previews import Preview, preview
from holdfast.engine.tables import operations
from holdfast.errors import UnknownOperation, UnknownTask, UsageError
from holdfast.jobs.job import JobFilter
from holdfast.jobs.moves import State
from holdfast.jobs.retention import Retention
from holdfast.resilience.pacing import MOST_UNENDED
from holdfast.tasks.payload import encode
from holdfast.values.duration import Duration, optional
from holdfast.values.validation import by_name, number, whole, word

#: Which jobs an action is for, where no state is given.
_MEANT = {BatchAction.RETRY: [State.FAILED], BatchAction.CANCEL: [State.QUEUED, State.PROCESSING]}
_POSSIBLE = {
    BatchAction.RETRY: {State.FAILED, State.CANCELLED, State.QUEUED, State.PROCESSING},
    BatchAction.CANCEL: {State.QUEUED, State.PROCESSING},
}
#: The share of failures above which an operation with a canary or a ramp stops, unless another is given.
STOP_ABOVE = 0.2


class OperationOptions(AnyFilters, total=False):
    """How an operation works, and on which jobs (`JobFilters`) or dead letters (`DeadLetterFilters`)."""

    by: str  #: who begins it; the events record it
    reason: str  #: why; required to discard
    for_owner: str | None  #: it belongs to this owner and reaches no jobs of others
    rate: float | None  #: at most this many jobs a second
    to_queue: str | None  #: redrive into this queue
    #: A JSON merge patch (RFC 7386) for the arguments of jobs that run again. Their steps are forgotten.
    patch: Mapping[str, Any] | None
    canary: int | None  #: this many jobs go first, and the others wait until these have ended
    ramp_from: float | None  #: begin with this many jobs a second; it doubles each minute until it is *rate*
    #: Stop when more than this share of the last 50 jobs that ended have failed again; 0.2 with a canary or a ramp.
    stop_above: float | None


class Operations(Namespace):
    """Work on all jobs, or all dead letters, that match a filter."""

    async def begin(
        self, action: str, *, token: str | None = None, **options: Unpack[OperationOptions]
    ) -> Operation:
        """Begin to `retry` or `cancel` all jobs that match, or to `redrive` or `discard` all dead letters that match.

        Without `state=`, failed jobs are retried, and queued and processing jobs are cancelled.

        Args:
            action: "retry", "cancel", "redrive" or "discard".
            token: An id that names this call. Repeated under it, it is the same operation.
            options: How, and which jobs; see `OperationOptions`.

        Returns the operation, with the number that `matched`. Raises `UsageError` for what cannot be done.
        """
        engine = await self._engine()
        operation = _operation(engine, action, options, token)
        counted = replace(operation, matched=await _count(engine, operation))
        return await operations.add(engine.store, counted)

    async def preview(self, action: str, **options: Unpack[OperationOptions]) -> Preview:
        """Return what `begin` with the same options would do now: to how many jobs, which are skipped, and a sample.

        It changes nothing. It counts up to 10,000 jobs, and checks the arguments of the first 100.
        """
        engine = await self._engine()
        return await preview(engine, _operation(engine, action, options, None))

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

    async def cancel(self, operation_id: str, *, by: str = "api") -> Operation:
        """Stop an operation, and return its last state. What it has done stays done. The event records *by*."""
        await operations.end((await self._engine()).store, operation_id, Progress.CANCELLED, by=by)
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


# -- what was asked for -------------------------------------------------------------------------------------------------
#: The options of an operation that it stores as they are.
_STORED = ("to_queue", "reason", "patch", "canary", "ramp_from", "stop_above")


def _operation(engine: Engine, action: str, asked: OperationOptions, token: str | None) -> Operation:
    """Return the operation that the options describe. Raises `UsageError` for what cannot be done."""
    if action not in BY_FILTER:
        raise UsageError(f"{action!r} is no operation; it is one of {', '.join(BY_FILTER)}")
    given = dict[str, Any](asked)
    by, rate, owner = given.pop("by", "api"), given.pop("rate", None), given.pop("for_owner", None)
    options = {name: given.pop(name, None) for name in _STORED}
    now = engine.clock.now()
    operation = Operation(
        id=token or engine.ids.job_id(),
        action=BatchAction(action),
        filter=given,
        by=by,
        options={name: value for name, value in options.items() if value not in (None, "")},
        rate=rate,
        owner=owner,
        created_at=now,
        updated_at=now,
    )
    operation = _narrowed(operation)
    _check_options(operation)
    _check_pace(operation)
    _check_patch(engine, operation)
    return operation


def _narrowed(operation: Operation) -> Operation:
    """Return the operation with the filters as they are stored: for its owner, and for the states of its action."""
    selected(operation)  # as it was given, so that an error quotes those words
    filters, action, owner = plain(operation.filter), operation.action, operation.owner
    if owner is not None:
        if filters.get("owner", owner) != owner:
            raise UsageError("these jobs belong to another owner")
        filters["owner"] = owner
    operation = replace(operation, filter=filters)
    chosen = selected(operation)
    if isinstance(chosen, JobFilter):
        if not chosen.states:
            filters["state"] = [str(state) for state in _MEANT[action]]
        elif not _POSSIBLE[action].issuperset(chosen.states):
            possible = ", ".join(state for state in State if state in _POSSIBLE[action])
            raise UsageError(f"{action} is for jobs that are {possible}; not for {', '.join(chosen.states)}")
    return operation


def _check_options(operation: Operation) -> None:
    options, action = operation.options, operation.action
    if operation.rate is not None:
        number("rate", operation.rate, SLOWEST, FASTEST)
    if "to_queue" in options:
        word("to_queue", options["to_queue"])
        if action is not BatchAction.REDRIVE:
            raise UsageError("to_queue is for redrive; what is retried stays in its queue")
    if action is BatchAction.DISCARD and not options.get("reason"):
        raise UsageError("say why these dead letters are discarded: reason=…")
    for name in ("patch", "canary", "ramp_from", "stop_above"):
        if name in options and action not in RUN_AGAIN:
            raise UsageError(f"{name} is for redrive and retry, after which jobs run again")


def _check_pace(operation: Operation) -> None:
    """Check the pace of an operation, and set its bound if it has none."""
    options, rate = operation.options, operation.rate
    if "canary" in options:
        whole("canary", options["canary"], 1, MOST_UNENDED)
    if "ramp_from" in options:
        if rate is None:
            raise UsageError("ramp_from is where the rate begins; say with rate= where it ends")
        number("ramp_from", options["ramp_from"], SLOWEST, rate)
    if "stop_above" in options:
        number("stop_above", options["stop_above"], 0, 1)
    elif "canary" in options or "ramp_from" in options:
        options["stop_above"] = STOP_ABOVE


def _check_patch(engine: Engine, operation: Operation) -> None:
    """Check that the tasks of an operation take the arguments of its patch."""
    patch = operation.options.get("patch")
    if patch is None:
        return
    if not by_name("patch", patch, '{"mapping": "jats"}'):
        raise UsageError("the patch is empty; leave it out, or say which arguments it changes")
    encode(patch, what="the patch")
    tasks = selected(operation).tasks
    if not tasks:
        raise UsageError("say which task the patch is for: task=…")
    for name in tasks:
        must_not_be_internal(name)
        if name not in engine.tasks:
            raise UnknownTask(name[:100], engine.tasks)
        task = engine.tasks[name]
        hint = task.option_hint([argument for argument, value in patch.items() if value is not None])
        if hint is not None:
            raise hint


async def _count(engine: Engine, operation: Operation) -> int:
    chosen = selected(operation)
    if isinstance(chosen, JobFilter):
        return await engine.store.queries.count(chosen)
    return await engine.store.queries.count_dead_letters(chosen)

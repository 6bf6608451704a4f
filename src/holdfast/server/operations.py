"""`/operations`: retry, cancel, redrive or discard everything that matches a filter. Workers carry an operation out in batches."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import ConfigDict, Field

from holdfast.engine.access import Action
from holdfast.engine.operation import FASTEST, SLOWEST, Operation, Progress
from holdfast.engine.permissions import must_be_declared, only_open
from holdfast.engine.previews import Preview, PreviewedJob
from holdfast.jobs.moves import State
from holdfast.redaction import redacted
from holdfast.resilience.pacing import MOST_UNENDED, Phase
from holdfast.server.pagination import MOST, LimitQuery, capped
from holdfast.server.responses import READ_ONLY, answer, token_of
from holdfast.server.routing import PREFIX, allows, app_of, caller_of, router
from holdfast.server.types import (
    Moment,
    Note,
    Number,
    RequestModel,
    ResponseModel,
    Word,
    none_of,
    picked,
    searchable,
    shows,
    when,
)

Some = Annotated[list[Word], Field(min_length=1, max_length=500)]
OperationIdPath = Annotated[str, Path(description="The operation's id.", max_length=100)]


_BY_REASON = (
    "The same, by reason: `changed` (their state does not allow it), `processing`, `due` (they are queued already), `duplicate` (another job has their"
    " dedupe key), `arguments` (they do not fit the task), `forbidden`, `refused`, or the code of an extension."
)


class OperationAction(StrEnum):
    """What an operation does to everything that matches."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    RETRY = "retry"
    CANCEL = "cancel"


class OperationFilter(RequestModel):
    """Which jobs (retry, cancel) or dead letters (redrive, discard). Every given field must match; an empty filter matches all."""

    ids: Some | None = None
    state: Annotated[list[State], Field(min_length=1, max_length=5)] | None = None
    task: Some | None = None
    queue: Some | None = None
    owner: Word | None = None
    tag: Word | None = None
    key: Word | None = None
    error_code: Word | None = None
    args: dict[Word, Any] | None = Field(
        default=None, description="For jobs: the values of some arguments.", max_length=20
    )
    created_after: Moment | None = None
    created_before: Moment | None = None
    code: Some | None = Field(
        default=None, description="For dead letters: the error code of their last attempt."
    )
    fingerprint: Word | None = Field(
        default=None, description="For dead letters: the fingerprint of their cause."
    )
    died_after: Moment | None = None
    died_before: Moment | None = None
    internal: bool | None = Field(
        default=None,
        strict=True,
        description="Include the engine's own jobs, which are left out unless they are named.",
    )


#: The filters for dead letters only, and those for jobs only.
_OF_DEAD_LETTERS = ("code", "fingerprint", "died_after", "died_before")
_OF_JOBS = ("state", "tag", "key", "error_code", "args", "created_after", "created_before")


def _states(*allowed: State) -> dict[str, Any]:
    return {"properties": {"state": {"items": {"enum": [str(state) for state in allowed]}}}}


#: Which fields may stand together, in JSON Schema. `holdfast.engine.operations` checks the same.
_TOGETHER: list[Any] = [
    when("action", ["redrive", "discard"], filter=none_of(_OF_JOBS)),
    when("action", ["retry", "cancel"], filter=none_of(_OF_DEAD_LETTERS), to_queue={"type": "null"}),
    when(
        "action",
        ["discard", "cancel"],
        **none_of(("patch", "canary", "ramp_from", "stop_above"))["properties"],
    ),
    when("action", ["retry"], filter=_states(State.FAILED, State.CANCELLED, State.QUEUED, State.PROCESSING)),
    when("action", ["cancel"], filter=_states(State.QUEUED, State.PROCESSING)),
    when("action", ["discard"], reason={"minLength": 1}, to_queue={"type": "null"}),
    {"if": {"properties": {"action": {"const": "discard"}}}, "then": {"required": ["reason"]}},
]


class OperationRequest(RequestModel):
    model_config = ConfigDict(json_schema_extra={"allOf": _TOGETHER})

    action: OperationAction = Field(examples=["redrive"])
    filter: OperationFilter = Field(examples=[{"task": ["convert"], "code": ["NETWORK"]}])
    rate: Annotated[float, Field(ge=SLOWEST, le=FASTEST), Number] | None = Field(
        default=None, description="The maximum number of jobs a second."
    )
    to_queue: Word | None = Field(default=None, description="For redrive: another queue than their own.")
    reason: Note = ""
    patch: dict[Word, Any] | None = Field(
        default=None,
        description="For jobs that run again: a JSON merge patch (RFC 7386) for their arguments. Name the `task` in the filter. All"
        " steps are forgotten.",
        min_length=1,
        max_length=100,
        examples=[{"mapping": "jats"}],
    )
    canary: Annotated[int, Field(ge=1, le=MOST_UNENDED, strict=True)] | None = Field(
        default=None, description="This many jobs go first. The others wait until these have ended."
    )
    ramp_from: Annotated[float, Field(ge=SLOWEST, le=FASTEST), Number] | None = Field(
        default=None,
        description="Begin with this many jobs a second. It doubles each minute until it is `rate`.",
    )
    stop_above: Annotated[float, Field(ge=0, le=1), Number] | None = Field(
        default=None,
        description="Stop when more than this share of the last 50 jobs that ended have failed again. 0.2 with a canary or a ramp.",
    )
    dry_run: bool = Field(
        default=False, strict=True, description="Change nothing, and answer what would happen."
    )


class OperationView(ResponseModel):
    id: str
    action: str = Field(description="redrive, discard, retry, cancel or replay.")
    filter: dict[str, Any] = Field(description="The filter. For a replay: the webhook, `after` and `before`.")
    by: str
    options: dict[str, Any]
    rate: float | None
    owner: str | None
    progress: Progress
    matched: int = Field(description="How many matched when it began; 0 for a replay.")
    done: int
    refused: int = Field(description="Jobs that were not moved, because they had changed or were refused.")
    skipped: dict[str, int] = Field(description=_BY_REASON)
    phase: Phase | None = Field(
        description="Of a running operation with a canary, a ramp or a bound on failures: where it stands."
    )
    ended: int = Field(description="With a bound on failures: how many of the moved jobs have ended.")
    failed_again: int = Field(description="How many of those failed again.")
    current_rate: float | None = Field(
        description="The rate now, in jobs a second. null: without a limit, or it waits for the outcome of jobs."
    )
    next_at: datetime | None = Field(description="When the rate admits the next jobs.")
    error: str | None
    created_at: datetime
    updated_at: datetime


@shows(PreviewedJob)
class PreviewedJobView(ResponseModel):
    skipped: str | None = Field(description="Why it would be skipped.")
    before: dict[str, Any] = Field(
        description="The arguments that the patch names. Values of secret names are hidden, long ones cut."
    )
    after: dict[str, Any] = Field(description="The same arguments as the patch leaves them.")


class OperationPreview(ResponseModel):
    dry_run: bool
    matched: int = Field(description="How many match, counted up to 10,000.")
    is_capped: bool = Field(description="Whether more may match than were counted.")
    skipped: dict[str, int] = Field(description="How many of them would be skipped, by reason.")
    checked: int = Field(description="For how many of them the arguments were checked too.")
    sample: list[PreviewedJobView]
    queues: list[str] = Field(description="The queues that the jobs are in, or go to.")
    waiting: int | None = Field(
        description="How many jobs are due or running in these queues now. null for keys of owners."
    )
    lasts_seconds: float | None = Field(
        description="How long it takes to move the jobs at the given rate, without the wait for a canary. null: no rate is given."
    )
    drains_in_seconds: float | None = Field(
        description="How long these queues then need for all their jobs, at the pace of the last 100 that completed. null: unknown, or the key is an owner's."
    )


class OperationList(ResponseModel):
    operations: list[OperationView]


routes = router("operations")
#: The options that a request passes on as they are.
_OPTIONS = ("rate", "to_queue", "reason", "patch", "canary", "ramp_from", "stop_above")


@routes.post(
    "/operations",
    status_code=202,
    response_model=OperationView,
    responses={200: {"model": OperationPreview, "description": "With `dry_run`: what would happen."}},
    **allows(Action.STEER),
)
async def begin_operation(request: Request, body: OperationRequest) -> Response:
    """Start an operation on everything that matches a filter."""
    app, caller = app_of(request), caller_of(request)
    filters = body.filter.model_dump(exclude_none=True)
    searchable(filters.get("args", {}))
    caller.own(body.filter.owner)
    if caller.is_owner and body.action in (OperationAction.RETRY, OperationAction.REDRIVE):
        filters["task"] = only_open(app.runtime, body.filter.task)
        must_be_declared(app.runtime, body.to_queue)
    options: dict[str, Any] = {
        "by": caller.name,
        "for_owner": caller.owner if caller.is_owner else None,
        **body.model_dump(include=set(_OPTIONS)),
        **filters,
    }
    if body.dry_run:
        request.scope[READ_ONLY] = True
        found = await app.operations.preview(body.action, **options)
        return answer(_preview_view(found, is_owner=caller.is_owner))
    return begun_response(
        request, await app.operations.begin(body.action, token=token_of(request), **options)
    )


def begun_response(request: Request, begun: Operation) -> Response:
    """Return the response for an operation that has begun: 202, with the URL of its progress."""
    place = f"{request.scope.get('root_path', '')}{PREFIX}/operations/{begun.id}"
    return answer(_view(begun), 202, {"Location": place})


@routes.get("/operations", response_model=OperationList, **allows(Action.SEE))
async def list_operations(request: Request, limit: LimitQuery = 50) -> Response:
    """List operations, newest first."""
    caller, most = caller_of(request), capped(limit)
    found = await app_of(request).operations.list(limit=MOST if caller.is_owner else most)
    return answer({"operations": [_view(one) for one in found if caller.reaches(one.owner)][:most]})


@routes.get("/operations/{operation_id}", response_model=OperationView, **allows(Action.SEE))
async def get_operation(request: Request, operation_id: OperationIdPath) -> Response:
    """Get the state of an operation."""
    return answer(_view(await _own_operation(request, operation_id)))


@routes.post("/operations/{operation_id}/cancel", response_model=OperationView, **allows(Action.STEER))
async def cancel_operation(request: Request, operation_id: OperationIdPath) -> Response:
    """Cancel an operation; what is done stays done."""
    await _own_operation(request, operation_id)
    by = caller_of(request).name
    return answer(_view(await app_of(request).operations.cancel(operation_id, by=by)))


async def _own_operation(request: Request, operation_id: str) -> Operation:
    found = await app_of(request).operations.get(operation_id)
    caller_of(request).must_reach(found.owner)
    return found


def _view(operation: Operation) -> dict[str, Any]:
    return picked(operation, OperationView, options=redacted(None, operation.options))


def _preview_view(preview: Preview, *, is_owner: bool) -> dict[str, Any]:
    # What waits in a queue is work of others too, which keys of owners do not see.
    drains_in = None if is_owner else preview.drains_in
    return picked(
        preview,
        OperationPreview,
        dry_run=True,
        sample=[_job_view(job) for job in preview.sample],
        waiting=None if is_owner else preview.waiting,
        lasts_seconds=None if preview.lasts is None else preview.lasts.total_seconds(),
        drains_in_seconds=None if drains_in is None else drains_in.total_seconds(),
    )


def _job_view(job: PreviewedJob) -> dict[str, Any]:
    shown = {name: redacted(None, getattr(job, name)) for name in ("before", "after")}
    return picked(job, PreviewedJobView, **shown)

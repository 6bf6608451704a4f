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
from holdfast.jobs.moves import State
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
    when,
)

Some = Annotated[list[Word], Field(min_length=1, max_length=500)]
OperationIdPath = Annotated[str, Path(description="The operation's id.", max_length=100)]


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
    dry_run: bool = Field(default=False, strict=True, description="Only count what matches.")


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
    refused: int = Field(description="Jobs that had changed meanwhile.")
    error: str | None
    created_at: datetime
    updated_at: datetime


class MatchCount(ResponseModel):
    dry_run: bool
    matched: int


class OperationList(ResponseModel):
    operations: list[OperationView]


routes = router("operations")


@routes.post(
    "/operations",
    status_code=202,
    response_model=OperationView,
    responses={200: {"model": MatchCount, "description": "With `dry_run`: how many match."}},
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
    begun = await app.operations.begin(
        body.action,
        by=caller.name,
        rate=body.rate,
        to_queue=body.to_queue,
        reason=body.reason,
        for_owner=caller.owner if caller.is_owner else None,
        dry_run=body.dry_run,
        token=token_of(request),
        **filters,
    )
    if body.dry_run:
        request.scope[READ_ONLY] = True
        return answer({"dry_run": True, "matched": begun.matched})
    return begun_response(request, begun)


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
    return answer(_view(await app_of(request).operations.cancel(operation_id)))


async def _own_operation(request: Request, operation_id: str) -> Operation:
    found = await app_of(request).operations.get(operation_id)
    caller_of(request).must_reach(found.owner)
    return found


def _view(operation: Operation) -> dict[str, Any]:
    return picked(operation, OperationView)

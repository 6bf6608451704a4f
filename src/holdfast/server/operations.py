"""`/operations`: retry, cancel, redrive or discard everything that matches a filter. Counted first if you like, done by the
workers in batches, cancellable, on record."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import ConfigDict, Field

from holdfast.domain.access import Action
from holdfast.domain.moves import State
from holdfast.domain.operation import FASTEST, SLOWEST, Operation, Progress
from holdfast.engine.operations import Plan, begin
from holdfast.engine.permissions import must_be_declared, only_open
from holdfast.server.pagination import MOST, LimitQuery, capped
from holdfast.server.responses import ONLY_LOOKED, answer, token_of
from holdfast.server.routing import PREFIX, allows, app_of, caller_of, router
from holdfast.server.types import Moment, Note, Number, RequestModel, ResponseModel, Word, none_of, when

Some = Annotated[list[Word], Field(min_length=1, max_length=500)]
OperationIdPath = Annotated[str, Path(description="The operation's id.", max_length=100)]


class OperationAction(StrEnum):
    """What can be done to everything that matches."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    RETRY = "retry"
    CANCEL = "cancel"


class OperationFilter(RequestModel):
    """Which jobs (retry, cancel) or dead letters (redrive, discard); all that is given must match, nothing given is all."""

    ids: Some | None = None
    state: Annotated[list[State], Field(min_length=1, max_length=5)] | None = None
    task: Some | None = None
    queue: Some | None = None
    owner: Word | None = None
    tag: Word | None = None
    key: Word | None = None
    error_code: Word | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    code: Some | None = Field(
        default=None, description="Of dead letters: the error code of their last attempt."
    )
    fingerprint: Word | None = Field(default=None, description="Of dead letters: their cause.")
    died_after: Moment | None = None
    died_before: Moment | None = None
    internal: bool | None = Field(
        default=None,
        strict=True,
        description="With the engine's own jobs, which are left out unless they are named.",
    )


#: Which filters are of dead letters only, and which of jobs only.
_OF_DEAD_LETTERS = ("code", "fingerprint", "died_after", "died_before")
_OF_JOBS = ("state", "tag", "key", "error_code", "created_after", "created_before")


def _states(*allowed: State) -> dict[str, Any]:
    return {"properties": {"state": {"items": {"enum": [str(state) for state in allowed]}}}}


#: What the fields say together, in the words of JSON Schema. `engine.operating` checks the same.
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
    to_queue: Word | None = Field(default=None, description="Of redrive: another queue than their own.")
    reason: Note = ""
    dry_run: bool = Field(default=False, strict=True, description="Only count what matches.")


class OperationView(ResponseModel):
    id: str
    action: str = Field(description="redrive, discard, retry, cancel or replay.")
    filter: dict[str, Any] = Field(description="The filter; of a replay the webhook, `after` and `before`.")
    by: str
    options: dict[str, Any]
    rate: float | None
    owner: str | None
    progress: Progress
    matched: int = Field(description="When it began. A replay counts nothing beforehand.")
    done: int
    refused: int = Field(description="They had moved on meanwhile.")
    error: str | None
    created_at: datetime
    updated_at: datetime


class MatchCount(ResponseModel):
    dry_run: bool
    matched: int


class Operations(ResponseModel):
    operations: list[OperationView]


routes = router("operations")


@routes.post(
    "/operations",
    status_code=202,
    response_model=OperationView,
    responses={200: {"model": MatchCount, "description": "With `dry_run`: how many match."}},
    summary="Do it to everything that matches",
    **allows(Action.STEER),
)
async def begin_operation(request: Request, body: OperationRequest) -> Response:
    caller = caller_of(request)
    filters = body.filter.model_dump(exclude_none=True)
    caller.own(body.filter.owner)
    if caller.is_owner and body.action in (OperationAction.RETRY, OperationAction.REDRIVE):
        filters["task"] = only_open(app_of(request), body.filter.task)
        must_be_declared(app_of(request), body.to_queue)
    plan = Plan(
        body.action,
        filters,
        by=caller.name,
        rate=body.rate,
        to_queue=body.to_queue,
        reason=body.reason,
        owner=caller.owner if caller.is_owner else None,
        token=token_of(request),
    )
    begun = await begin(await app_of(request).engine(), plan, dry_run=body.dry_run)
    if body.dry_run:
        request.scope[ONLY_LOOKED] = True
        return answer({"dry_run": True, "matched": begun.matched})
    return begun_answer(request, begun)


def begun_answer(request: Request, begun: Operation) -> Response:
    """Return the 202 of an operation that has begun, with the place where its progress is found."""
    place = f"{request.scope.get('root_path', '')}{PREFIX}/operations/{begun.id}"
    return answer(_view(begun), 202, {"Location": place})


@routes.get(
    "/operations", response_model=Operations, summary="Operations, newest first", **allows(Action.SEE)
)
async def list_operations(request: Request, limit: LimitQuery = 50) -> Response:
    caller, most = caller_of(request), capped(limit)
    found = await app_of(request).operations(limit=MOST if caller.is_owner else most)
    return answer({"operations": [_view(one) for one in found if caller.reaches(one.owner)][:most]})


@routes.get(
    "/operations/{operation_id}",
    response_model=OperationView,
    summary="How an operation stands",
    **allows(Action.SEE),
)
async def get_operation(request: Request, operation_id: OperationIdPath) -> Response:
    return answer(_view(await _reached(request, operation_id)))


@routes.post(
    "/operations/{operation_id}/cancel",
    response_model=OperationView,
    summary="Do no more of it; what is done stays done",
    **allows(Action.STEER),
)
async def cancel_operation(request: Request, operation_id: OperationIdPath) -> Response:
    await _reached(request, operation_id)
    return answer(_view(await app_of(request).cancel_operation(operation_id)))


async def _reached(request: Request, operation_id: str) -> Operation:
    found = await app_of(request).operation(operation_id)
    caller_of(request).must_reach(found.owner)
    return found


def _view(operation: Operation) -> dict[str, Any]:
    return {name: getattr(operation, name) for name in OperationView.model_fields}

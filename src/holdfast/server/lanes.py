"""`/queues`, `/lanes`, `/holds`: list queues, lanes and holds; pause and resume."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.engine.explanations import LaneRow, QueueRow
from holdfast.errors import UsageError
from holdfast.jobs.lanes import ScopeKind
from holdfast.server.pagination import LimitQuery, NameCursorQuery, capped
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.types import Note, RequestModel, ResponseModel, Span, Word, picked
from holdfast.server.views import held_view


class HeldView(ResponseModel):
    kind: ScopeKind
    name: str
    cause: str
    until: datetime | None = Field(description="null: until it is resumed.")
    reason: str
    by: str
    at: datetime


class QueueView(ResponseModel):
    name: str
    tasks: list[str]
    waiting: int
    workers: int
    held: HeldView | None


class QueueList(ResponseModel):
    queues: list[QueueView]
    next: str | None = Field(description="The cursor to the next page; null: this was the last.")


class LaneView(ResponseModel):
    label: str = Field(examples=["convert/convert@gateway"])
    queue: str
    task: str
    dependency: str
    fair: bool
    waiting: int
    held: HeldView | None
    breaker: str | None
    limit: int | None
    in_flight: int | None


class LaneList(ResponseModel):
    lanes: list[LaneView]
    next: str | None = Field(description="The cursor to the next page; null: this was the last.")


class ScheduledView(ResponseModel):
    at: datetime = Field(description="The begin of the piece of time.")
    dependency: str = Field(description="Empty: their task calls none.")
    retries: int = Field(description="Automatic retries.")
    delayed: int = Field(description="Jobs that were not attempted yet.")


class ForecastView(ResponseModel):
    at: datetime = Field(description="Now.")
    bucket_seconds: float
    until: datetime = Field(description="Jobs that are due later were not counted.")
    is_capped: bool = Field(
        description="Whether that is less than was asked for, because there are very many jobs."
    )
    scheduled: list[ScheduledView]


class HoldList(ResponseModel):
    holds: list[HeldView]


class PauseRequest(RequestModel):
    duration: Span | None = Field(default=None, description="How long; null: until it is resumed.")
    reason: Note = ""


class ScopeRequest(RequestModel):
    kind: ScopeKind
    name: Word = Field(examples=["convert"])


class PauseScopeRequest(ScopeRequest, PauseRequest):
    """What to pause: a queue, task, lane, dependency, schedule or maintenance task."""


class Paused(ResponseModel):
    kind: ScopeKind
    name: str
    paused: bool


class Resumed(ResponseModel):
    kind: ScopeKind
    name: str
    resumed: bool = Field(description="Whether there was a pause.")


NamePath = Annotated[str, Path(description="Its name.", examples=["convert"], max_length=500)]


async def pause(request: Request, kind: ScopeKind, name: str, body: PauseRequest | None) -> Response:
    options = body or PauseRequest()
    try:
        await app_of(request).queues.pause(
            name, kind=kind, duration=options.duration, reason=options.reason, by=caller_of(request).name
        )
    except UsageError as error:  # the only reason: there is no such name
        raise Problem("NOT_FOUND", str(error)) from None
    return answer({"kind": kind, "name": name, "paused": True})


async def resume(request: Request, kind: ScopeKind, name: str) -> Response:
    try:
        resumed = await app_of(request).queues.resume(name, kind=kind, by=caller_of(request).name)
    except UsageError as error:
        raise Problem("NOT_FOUND", str(error)) from None
    return answer({"kind": kind, "name": name, "resumed": resumed})


SpanQuery = Annotated[Span, Query()]

routes = router("lanes")


@routes.get("/forecast", response_model=ForecastView, **allows(Action.LOOK))
async def get_forecast(request: Request, within: SpanQuery = "1h", bucket: SpanQuery = "1m") -> Response:
    """Count the jobs that will be due from now on, by time and dependency."""
    found = await app_of(request).queues.forecast(within=within, bucket=bucket)
    rows = [row._asdict() for row in found.scheduled]
    return answer(picked(found, ForecastView, bucket_seconds=found.bucket.total_seconds(), scheduled=rows))


@routes.get("/queues", response_model=QueueList, **allows(Action.LOOK))
async def list_queues(request: Request, cursor: NameCursorQuery = None, limit: LimitQuery = 100) -> Response:
    """List queues and their state."""
    pages, most = context_of(request).pages, capped(limit)
    found = await app_of(request).queues.list(after=pages.open(cursor, "queues"), limit=most)
    upcoming = found[-1].name if len(found) == most else None
    return answer({"queues": [_view(row) for row in found], "next": pages.seal(upcoming, "queues")})


@routes.get("/lanes", response_model=LaneList, **allows(Action.LOOK))
async def list_lanes(request: Request, cursor: NameCursorQuery = None, limit: LimitQuery = 100) -> Response:
    """List lanes and their state."""
    pages, most = context_of(request).pages, capped(limit)
    found = await app_of(request).queues.lanes(after=pages.open(cursor, "lanes"), limit=most)
    upcoming = found[-1].label if len(found) == most else None
    return answer({"lanes": [_view(row) for row in found], "next": pages.seal(upcoming, "lanes")})


@routes.get("/holds", response_model=HoldList, **allows(Action.LOOK))
async def list_holds(request: Request) -> Response:
    """List current holds."""
    return answer({"holds": [held_view(hold) for hold in await app_of(request).queues.holds()]})


@routes.post("/pause", response_model=Paused, **allows(Action.OPERATE))
async def pause_scope(request: Request, body: PauseScopeRequest) -> Response:
    """Pause a queue, task, lane, dependency, schedule or maintenance task."""
    return await pause(request, body.kind, body.name, body)


@routes.post("/resume", response_model=Resumed, **allows(Action.OPERATE))
async def resume_scope(request: Request, body: ScopeRequest) -> Response:
    """End a pause."""
    return await resume(request, body.kind, body.name)


@routes.post("/queues/{name}/pause", response_model=Paused, **allows(Action.OPERATE))
async def pause_queue(request: Request, name: NamePath, body: PauseRequest | None = None) -> Response:
    """Pause a queue."""
    return await pause(request, ScopeKind.QUEUE, name, body)


@routes.post("/queues/{name}/resume", response_model=Resumed, **allows(Action.OPERATE))
async def resume_queue(request: Request, name: NamePath) -> Response:
    """Resume a queue."""
    return await resume(request, ScopeKind.QUEUE, name)


def _view(row: QueueRow | LaneRow) -> dict[str, Any]:
    shown = {field.name: getattr(row, field.name) for field in fields(row)}
    return shown | {"held": held_view(row.held)}

"""`/schedules`: list schedules; run, pause, resume and forget them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.engine.schedules import ScheduleRow
from holdfast.errors import UsageError
from holdfast.jobs.lanes import ScopeKind
from holdfast.server.lanes import HeldView, NamePath, Paused, PauseRequest, Resumed, pause, resume
from holdfast.server.problems import Problem
from holdfast.server.responses import answer, token_of
from holdfast.server.routing import allows, app_of, router
from holdfast.server.types import ResponseModel, picked
from holdfast.server.views import held_view


class ScheduleView(ResponseModel):
    name: str
    task: str | None
    when: str | None
    zone: str | None
    last: datetime | None
    next: datetime | None
    held: HeldView | None


class ScheduleList(ResponseModel):
    schedules: list[ScheduleView]


class ForgottenSchedule(ResponseModel):
    name: str
    forgotten: bool


class ScheduledJob(ResponseModel):
    name: str
    id: str = Field(description="The id of the enqueued job.")


routes = router("schedules")


@routes.get("/schedules", response_model=ScheduleList, **allows(Action.LOOK))
async def list_schedules(request: Request) -> Response:
    """List schedules and their ticks."""
    return answer({"schedules": [_view(row) for row in await app_of(request).schedules.list()]})


@routes.post("/schedules/{name}/run", status_code=201, response_model=ScheduledJob, **allows(Action.OPERATE))
async def run_schedule(request: Request, name: NamePath) -> Response:
    """Enqueue the job of a schedule once, now."""
    try:
        job_id = await app_of(request).schedules.run(name, job_id=token_of(request))
    except UsageError as error:
        raise Problem("NOT_FOUND", str(error)) from None
    return answer({"name": name, "id": job_id}, 201)


@routes.post("/schedules/{name}/pause", response_model=Paused, **allows(Action.OPERATE))
async def pause_schedule(request: Request, name: NamePath, body: PauseRequest | None = None) -> Response:
    """Pause a schedule."""
    return await pause(request, ScopeKind.SCHEDULE, name, body)


@routes.post("/schedules/{name}/resume", response_model=Resumed, **allows(Action.OPERATE))
async def resume_schedule(request: Request, name: NamePath) -> Response:
    """Resume a schedule."""
    return await resume(request, ScopeKind.SCHEDULE, name)


@routes.post("/schedules/{name}/forget", response_model=ForgottenSchedule, **allows(Action.OPERATE))
async def forget_schedule(request: Request, name: NamePath) -> Response:
    """Delete a schedule that the code no longer declares; a declared one begins again with its next tick."""
    try:
        await app_of(request).schedules.forget(name)
    except UsageError as error:
        raise Problem("NOT_FOUND", str(error)) from None
    return answer({"name": name, "forgotten": True})


def _view(row: ScheduleRow) -> dict[str, Any]:
    return picked(row, ScheduleView, held=held_view(row.held))

"""`/schedules`: which there are and when they tick; pause, resume and forget one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Request, Response

from holdfast.domain.access import Action
from holdfast.domain.lanes import Held, ScopeKind
from holdfast.domain.schedule import Cron, Schedule, describe
from holdfast.engine.lane_store import Tick
from holdfast.errors import UsageError
from holdfast.server.lanes import HeldView, NamePath, Paused, PauseRequest, Resumed, pause, resume
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, context_of, router
from holdfast.server.types import ResponseModel
from holdfast.server.views import held_view


class ScheduleView(ResponseModel):
    name: str
    task: str | None
    when: str | None
    zone: str | None
    last: datetime | None
    next: datetime | None
    held: HeldView | None


class Schedules(ResponseModel):
    schedules: list[ScheduleView]


class ForgottenSchedule(ResponseModel):
    name: str
    forgotten: bool


routes = router("schedules")


@routes.get("/schedules", response_model=Schedules, summary="When schedules tick", **allows(Action.LOOK))
async def list_schedules(request: Request) -> Response:
    store, declared = await context_of(request).store(), app_of(request).schedules
    ticks, now = {tick.name: tick for tick in await store.ticks()}, await store.now()
    held = {one.scope.name: one for one in await store.holds() if one.scope.kind is ScopeKind.SCHEDULE}
    names = sorted(ticks.keys() | declared)
    shown = [_view(name, declared.get(name), ticks.get(name), held.get(name), now) for name in names]
    return answer({"schedules": shown})


@routes.post(
    "/schedules/{name}/pause",
    response_model=Paused,
    summary="Enqueue nothing more by it",
    **allows(Action.OPERATE),
)
async def pause_schedule(request: Request, name: NamePath, body: PauseRequest | None = None) -> Response:
    return await pause(request, ScopeKind.SCHEDULE, name, body)


@routes.post(
    "/schedules/{name}/resume", response_model=Resumed, summary="End its pause", **allows(Action.OPERATE)
)
async def resume_schedule(request: Request, name: NamePath) -> Response:
    return await resume(request, ScopeKind.SCHEDULE, name)


@routes.post(
    "/schedules/{name}/forget",
    response_model=ForgottenSchedule,
    summary="Remove one that no code declares any more; a declared one begins again with its next tick",
    **allows(Action.OPERATE),
)
async def forget_schedule(request: Request, name: NamePath) -> Response:
    try:
        await app_of(request).forget_schedule(name)
    except UsageError as error:
        raise Problem("NOT_FOUND", str(error)) from None
    return answer({"name": name, "forgotten": True})


def _view(
    name: str, declared: Schedule | None, tick: Tick | None, held: Held | None, now: datetime
) -> dict[str, Any]:
    cron = declared.when if declared is not None and isinstance(declared.when, Cron) else None
    upcoming = tick.due if tick else declared.when.next_after(now) if declared else None
    return {
        "name": name,
        "task": declared and declared.task,
        "when": cron.expression if cron else declared and describe(declared.when),
        "zone": cron and cron.zone,
        "last": tick and tick.ticked,
        "next": upcoming,
        "held": held_view(held),
    }

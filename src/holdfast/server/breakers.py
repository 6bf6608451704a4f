"""`/breakers`: list dependencies and their breakers as all workers see them; open, close or try one."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.engine.lane_store import DependencyState
from holdfast.errors import UsageError
from holdfast.resilience.breaker import Breaker
from holdfast.server.jobs import IF_MATCH
from holdfast.server.lanes import NamePath, PauseRequest
from holdfast.server.models import ReasonRequest
from holdfast.server.problems import Problem
from holdfast.server.responses import answer, wanted_tags
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import ResponseModel, picked

_VERSION = re.compile(r"[0-9]{1,18}")


class BreakerView(ResponseModel):
    dependency: str = Field(description="The dependency; with a shard, name#shard.", examples=["gateway"])
    state: str = Field(examples=["open"])
    version: int
    since: datetime | None
    opened_at: datetime | None
    next_trial_at: datetime | None
    reopens: int


class DependencyView(BreakerView):
    votes: int
    callers: int
    limit: int
    in_flight: int
    latency_seconds: float | None
    calls: int
    failures: int


class BreakerList(ResponseModel):
    breakers: list[DependencyView]


routes = router("breakers")


@routes.get("/breakers", response_model=BreakerList, **allows(Action.LOOK))
async def list_breakers(request: Request) -> Response:
    """List dependencies and their breakers."""
    return answer({"breakers": [_view(one) for one in await app_of(request).breakers.list()]})


@routes.get("/breakers/{name}", response_model=DependencyView, **allows(Action.LOOK))
async def get_breaker(request: Request, name: NamePath) -> Response:
    """Get one dependency."""
    found = await _find(request, name)
    if found is None:
        raise Problem("NOT_FOUND", "no dependency of this name has a breaker yet")
    return answer(_view(found), headers={"ETag": _tag(found.breaker)})


@routes.post(
    "/breakers/{name}/open",
    response_model=BreakerView,
    **allows(Action.OPERATE, 409, 412, openapi_extra=IF_MATCH),
)
async def open_breaker(request: Request, name: NamePath, body: PauseRequest | None = None) -> Response:
    """Open a breaker for a time or its cooldown; then trials begin."""
    pause, breakers = body or PauseRequest(), app_of(request).breakers
    move = breakers.open(name, duration=pause.duration, reason=pause.reason, **_conditions(request))
    return await _moved(name, move)


@routes.post(
    "/breakers/{name}/close",
    response_model=BreakerView,
    **allows(Action.OPERATE, 409, 412, openapi_extra=IF_MATCH),
)
async def close_breaker(request: Request, name: NamePath, body: ReasonRequest | None = None) -> Response:
    """Close a breaker without trials."""
    reason, breakers = (body or ReasonRequest()).reason, app_of(request).breakers
    return await _moved(name, breakers.close(name, reason=reason, **_conditions(request)))


@routes.post(
    "/breakers/{name}/trial",
    response_model=BreakerView,
    **allows(Action.OPERATE, 409, 412, openapi_extra=IF_MATCH),
)
async def try_breaker(request: Request, name: NamePath, body: ReasonRequest | None = None) -> Response:
    """Begin the trials of a breaker now."""
    reason, breakers = (body or ReasonRequest()).reason, app_of(request).breakers
    return await _moved(name, breakers.try_(name, reason=reason, **_conditions(request)))


def _conditions(request: Request) -> dict[str, Any]:
    """Return the name of the caller, and the versions of the breaker that `If-Match` allows."""
    tags = wanted_tags(request)
    versions = None if tags is None else [int(tag) for tag in tags if _VERSION.fullmatch(tag)]
    return {"by": caller_of(request).name, "versions": versions}


async def _moved(name: str, move: Awaitable[Breaker]) -> Response:
    try:
        changed = await move
    except UsageError as error:
        raise Problem("NOT_FOUND", str(error)) from None
    return answer(_breaker(name, changed), headers={"ETag": _tag(changed)})


async def _find(request: Request, name: str) -> DependencyState | None:
    return next((one for one in await app_of(request).breakers.list() if one.dependency.label == name), None)


def _tag(breaker: Breaker) -> str:
    return f'"{breaker.version}"'


def _breaker(name: str, breaker: Breaker) -> dict[str, Any]:
    return picked(breaker, BreakerView, dependency=name, next_trial_at=breaker.retry_at)


def _view(state: DependencyState) -> dict[str, Any]:
    breaker = _breaker(state.dependency.label, state.breaker)
    return picked(state, DependencyView, latency_seconds=state.latency, **breaker)

"""`/breakers`: the services that tasks call, as all workers see them; open, close or try one by hand."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from pydantic import Field

from holdfast.domain.access import Action
from holdfast.domain.breaker import Breaker
from holdfast.domain.duration import optional
from holdfast.engine.lane_store import DependencyState
from holdfast.errors import UsageError
from holdfast.server.jobs import IF_MATCH
from holdfast.server.lanes import NamePath, PauseRequest
from holdfast.server.models import ReasonRequest
from holdfast.server.problems import Problem
from holdfast.server.responses import answer, wanted_tags
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import ResponseModel

_VERSION = re.compile(r"[0-9]{1,18}")


class BreakerView(ResponseModel):
    dependency: str = Field(description="With its shard: name#shard.", examples=["gateway"])
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


class Breakers(ResponseModel):
    breakers: list[DependencyView]


routes = router("breakers")


@routes.get("/breakers", response_model=Breakers, summary="How dependencies stand", **allows(Action.LOOK))
async def list_breakers(request: Request) -> Response:
    return answer({"breakers": [_dependency_state(one) for one in await app_of(request).breakers()]})


@routes.get(
    "/breakers/{name}", response_model=DependencyView, summary="One dependency", **allows(Action.LOOK)
)
async def get_breaker(request: Request, name: NamePath) -> Response:
    found = await _find(request, name)
    if found is None:
        raise Problem("NOT_FOUND", "no dependency of this name has a breaker yet")
    return answer(_dependency_state(found), headers={"ETag": _tag(found.breaker)})


@routes.post(
    "/breakers/{name}/open",
    response_model=BreakerView,
    summary="Hold back all calls to it, for a time or its cooldown; then trials begin",
    **allows(Action.OPERATE, 409, 412, openapi_extra=IF_MATCH),
)
async def open_breaker(request: Request, name: NamePath, body: PauseRequest | None = None) -> Response:
    asked, engine = body or PauseRequest(), await app_of(request).engine()
    return await _told(
        name,
        engine.open_breaker(name, span=optional(asked.duration), reason=asked.reason, **_terms(request)),
    )


@routes.post(
    "/breakers/{name}/close",
    response_model=BreakerView,
    summary="Let calls to it begin again, without trials",
    **allows(Action.OPERATE, 409, 412, openapi_extra=IF_MATCH),
)
async def close_breaker(request: Request, name: NamePath, body: ReasonRequest | None = None) -> Response:
    reason, engine = (body or ReasonRequest()).reason, await app_of(request).engine()
    return await _told(name, engine.close_breaker(name, reason=reason, **_terms(request)))


@routes.post(
    "/breakers/{name}/trial",
    response_model=BreakerView,
    summary="Let its trials begin now",
    **allows(Action.OPERATE, 409, 412, openapi_extra=IF_MATCH),
)
async def try_breaker(request: Request, name: NamePath, body: ReasonRequest | None = None) -> Response:
    reason, engine = (body or ReasonRequest()).reason, await app_of(request).engine()
    return await _told(name, engine.try_breaker(name, reason=reason, **_terms(request)))


def _terms(request: Request) -> dict[str, Any]:
    """Who forces it, and the versions that they may have read."""
    tags = wanted_tags(request)
    read = None if tags is None else [int(tag) for tag in tags if _VERSION.fullmatch(tag)]
    return {"by": caller_of(request).name, "versions": read}


async def _told(name: str, forcing: Awaitable[Breaker]) -> Response:
    try:
        changed = await forcing
    except UsageError as error:
        raise Problem("NOT_FOUND", str(error)) from None
    return answer({"dependency": name, **_breaker(changed)}, headers={"ETag": _tag(changed)})


async def _find(request: Request, name: str) -> DependencyState | None:
    return next((one for one in await app_of(request).breakers() if one.dependency.label == name), None)


def _tag(breaker: Breaker) -> str:
    return f'"{breaker.version}"'


def _breaker(breaker: Breaker) -> dict[str, Any]:
    return {
        "state": breaker.state,
        "version": breaker.version,
        "since": breaker.since,
        "opened_at": breaker.opened_at,
        "next_trial_at": breaker.retry_at,
        "reopens": breaker.reopens,
    }


def _dependency_state(state_of_dependency: DependencyState) -> dict[str, Any]:
    return {
        "dependency": state_of_dependency.dependency.label,
        **_breaker(state_of_dependency.breaker),
        "votes": state_of_dependency.votes,
        "callers": state_of_dependency.callers,
        "limit": state_of_dependency.limit,
        "in_flight": state_of_dependency.in_flight,
        "latency_seconds": state_of_dependency.latency,
        "calls": state_of_dependency.calls,
        "failures": state_of_dependency.failures,
    }

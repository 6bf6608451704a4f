"""All routes of the API, and the document that describes them. Made once, for all APIs of a process: a route finds the app that
is asked by the request."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import Request, Response

from holdfast.domain.access import Action
from holdfast.server import (
    admin,
    breakers,
    dead_letters,
    enqueue,
    health,
    inbound,
    jobs,
    keys,
    lanes,
    messages,
    metrics,
    operations,
    owners,
    schedules,
    stream,
    webhooks,
    workers,
)
from holdfast.server.openapi import draw
from holdfast.server.responses import answer
from holdfast.server.routing import ApiRoute, allows, router

description = router("description")


@description.get("/openapi.json", summary="This document", response_model=dict, **allows(Action.SEE))
async def get_openapi(request: Request) -> Response:
    return answer(document(request.scope.get("root_path", "")))


_ROUTERS = (
    enqueue.routes,
    jobs.routes,
    operations.routes,
    dead_letters.routes,
    messages.routes,
    lanes.routes,
    breakers.routes,
    schedules.routes,
    owners.routes,
    workers.routes,
    admin.routes,
    keys.routes,
    stream.routes,
    webhooks.routes,
    inbound.routes,
    health.routes,
    metrics.routes,
    description,
)
#: Of two that fit a path the first is taken.
ROUTES = tuple(route for one in _ROUTERS for route in one.routes)
#: Those that are answered past the framework, by method and path.
DIRECT = dict(found for route in ROUTES if isinstance(route, ApiRoute) for found in route.directly())


def document(root: str = "") -> dict[str, Any]:
    """The OpenAPI document; *root* is where the API is mounted."""
    return _drawn() | {"servers": [{"url": root or "/"}]}


@cache
def _drawn() -> dict[str, Any]:
    return draw(ROUTES)

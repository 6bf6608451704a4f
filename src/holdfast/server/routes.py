"""All routes of the API and the document that describes them. All APIs of a process share them: a route finds its app by the request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from holdfast.engine.access import Action
from holdfast.server import (
    admin,
    breakers,
    dead_letters,
    enqueue,
    extensions,
    health,
    inbound,
    jobs,
    keys,
    lanes,
    messages,
    metrics,
    operations,
    owners,
    policies,
    schedules,
    session,
    statistics,
    stream,
    webhooks,
    workers,
)
from holdfast.server.openapi import make_document
from holdfast.server.responses import answer
from holdfast.server.routing import allows, context_of, router

description = router("description")


@description.get("/openapi.json", summary="Get this document", response_model=dict, **allows(Action.SEE))
async def get_openapi(request: Request) -> Response:
    context = context_of(request)
    if context.document is None:
        context.document = document(context.extension_routes)
    return answer(context.document | {"servers": [{"url": request.scope.get("root_path", "") or "/"}]})


_ROUTERS = (
    enqueue.routes,
    jobs.routes,
    operations.routes,
    dead_letters.routes,
    messages.routes,
    lanes.routes,
    breakers.routes,
    policies.routes,
    schedules.routes,
    owners.routes,
    workers.routes,
    statistics.routes,
    admin.routes,
    keys.routes,
    session.routes,
    stream.routes,
    webhooks.routes,
    inbound.routes,
    health.routes,
    metrics.routes,
    extensions.routes,
    description,
)
#: Of two routes that fit a path the first is taken.
ROUTES = tuple(route for one in _ROUTERS for route in one.routes)


def document(added: Sequence[APIRoute] = ()) -> dict[str, Any]:
    """Return the OpenAPI document of an API that is not mounted. *added* are routes of extensions."""
    made = make_document((*ROUTES, *added)) if added else _document()
    return made | {"servers": [{"url": "/"}]}


@cache
def _document() -> dict[str, Any]:
    return make_document(ROUTES)

"""The routes of the toy extension: a module of its own, imported by the server alone."""

from __future__ import annotations

from fastapi import Request, Response

from holdfast.engine.access import Action
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, router
from tests.extensions.visits import as_extension

routes = router("visits")


@routes.get("/visits", response_model=dict, **allows(Action.LOOK))
async def list_visits(request: Request) -> Response:
    return answer({"seen": len(await as_extension(app_of(request).extensions["visits"]).seen())})

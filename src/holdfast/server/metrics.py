"""`/metrics`: the metrics of this process and of the database, for Prometheus. It needs a key."""

from __future__ import annotations

from fastapi import Request, Response

from holdfast.engine.access import Action
from holdfast.server.routing import allows, context_of, router

routes = router("watching", prefix="")


@routes.get(
    "/metrics",
    operation_id="get_metrics",
    summary="Get Metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    **allows(Action.LOOK, 503),
)
async def get_metrics(request: Request) -> Response:
    """The metrics of this process and of the database, in the text format of Prometheus."""
    body, kind = await context_of(request).metrics.text(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": kind})

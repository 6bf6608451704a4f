"""`/metrics`: this process and the database, for Prometheus. It needs a key that may look, as the dashboard does."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from holdfast.domain.access import Action
from holdfast.http.door import Door
from holdfast.http.routing import does, router


def routes(door: Door) -> APIRouter:
    open_to = router("watching", prefix="")
    metrics = door.app.metrics  # counts from now on, not from the first scrape on

    @open_to.get(
        "/metrics",
        operation_id="get_metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        **does(Action.LOOK, 503),
    )
    async def get_metrics(request: Request) -> Response:
        """The metrics of this process and of the database, in the text format of Prometheus."""
        body, kind = await metrics.text(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    return open_to

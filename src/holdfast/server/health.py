"""Health checks: `/livez` and `/readyz` for process managers, `/api/v1/health` for people."""

from __future__ import annotations

from typing import Any

import pydantic
from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from holdfast.engine.access import Action
from holdfast.health.diagnostics import Diagnostics
from holdfast.health.judgement import Health, Level
from holdfast.server.routing import PREFIX, allows, app_of, router


class CheckView(pydantic.BaseModel):
    name: str = pydantic.Field(examples=["queue_depth"])
    status: Level
    seen: Any = pydantic.Field(description="The value that was found.", examples=[12_345])
    threshold: Any = pydantic.Field(description="The value from which on the check warns.", examples=[10_000])
    text: str = pydantic.Field(examples=["12,345 jobs wait in queue 'mail'; add workers"])


class HealthView(pydantic.BaseModel):
    status: Level = pydantic.Field(description="The worst of all checks.")
    checks: list[CheckView]

    @classmethod
    def of(cls, health: Health) -> HealthView:
        return cls(
            status=health.level,
            checks=[
                CheckView(name=c.name, status=c.level, seen=c.seen, threshold=c.threshold, text=c.text)
                for c in health.checks
            ],
        )


# `/livez` and `/readyz` are open: a process manager has no key, and they reveal nothing else.
routes = router("watching", prefix="")


@routes.get(
    "/livez",
    operation_id="get_liveness",
    summary="Get Liveness",
    response_class=PlainTextResponse,
    **allows(None),
)
async def get_liveness() -> Response:
    """200: the process answers."""
    return PlainTextResponse("alive\n")


@routes.get(
    "/readyz",
    operation_id="get_readiness",
    summary="Get Readiness",
    response_class=PlainTextResponse,
    responses={503: {"description": "Not ready, and why.", "content": {"text/plain": {}}}},
    **allows(None),
)
async def get_readiness(request: Request) -> Response:
    """200: the database answers within a second and has the right schema. 503: it does not."""
    reason = await Diagnostics(app_of(request).runtime).not_ready()
    return PlainTextResponse("ready\n") if reason is None else PlainTextResponse(f"{reason}\n", 503)


@routes.get(
    f"{PREFIX}/health",
    operation_id="get_health",
    summary="Get Health",
    response_model=HealthView,
    responses={503: {"model": HealthView, "description": "A check fails."}},
    **allows(Action.LOOK),
)
async def get_health(request: Request, response: Response) -> HealthView:
    """Check queues, maintenance, breakers and pauses, each against its threshold. 503 when a check fails."""
    health = await app_of(request).health()
    response.status_code = 503 if health.level is Level.FAIL else 200
    return HealthView.of(health)

"""`/extensions`: which extensions the app has, and what each can do. Pages ask before they show a part of themselves."""

from __future__ import annotations

from fastapi import Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, router
from holdfast.server.types import ResponseModel


class ExtensionView(ResponseModel):
    name: str = Field(examples=["credits"])
    capabilities: list[str] = Field(
        description="What it can do, as pages ask for it.", examples=[["credits"]]
    )


class Extensions(ResponseModel):
    extensions: list[ExtensionView]


routes = router("description")


@routes.get("/extensions", response_model=Extensions, **allows(Action.SEE))
async def list_extensions(request: Request) -> Response:
    """List the app's extensions."""
    found = app_of(request).extensions.items()
    return answer(
        {
            "extensions": [
                {"name": name, "capabilities": sorted(one.capabilities)} for name, one in sorted(found)
            ]
        }
    )

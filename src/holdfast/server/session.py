"""`/session`: who the caller is, and the sessions of the dashboard, for which a key is exchanged."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import ConfigDict, Field, model_validator

from holdfast import __version__
from holdfast.engine.access import Action, Role
from holdfast.server.access import Caller
from holdfast.server.responses import answer, encode
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.session_cookie import HEADER
from holdfast.server.types import RequestModel, ResponseModel

Secret = Annotated[str, Field(min_length=1, max_length=200)]


def _only(one: str, other: str) -> dict[str, Any]:
    return {"required": [one], "properties": {one: {"type": "string"}, other: {"type": "null"}}}


class SessionRequest(RequestModel):
    """A key, or the token of the address that a server in development has printed."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_only("key", "token"), _only("token", "key")]})

    key: Secret | None = Field(default=None, description="The secret of a key.", examples=["hf_…"])
    token: Secret | None = Field(default=None, description="A one-time token.")

    @model_validator(mode="after")
    def _one(self) -> SessionRequest:
        if (self.key is None) is (self.token is None):
            raise ValueError("send a key or a token")
        return self


class SessionView(ResponseModel):
    name: str = Field(description="The caller, as events record it.")
    role: Role
    owner: str | None = Field(description="For the role owner: whose jobs it reaches.")
    actions: list[Action] = Field(description="What the caller may do.")
    environment: str = Field(description="The setting `environment`.")
    version: str = Field(description="The version of Holdfast.")
    ends_at: datetime | None = Field(description="When the session ends; null: this is a key.")


routes = router("session")


@routes.get("/session", response_model=SessionView, **allows(Action.SEE))
async def get_session(request: Request) -> Response:
    """Get the caller and what it may do."""
    is_page = HEADER in request.headers and "authorization" not in request.headers
    session = context_of(request).sessions.read(request) if is_page else None
    return answer(_view(request, caller_of(request), None if session is None else session.ends_at))


@routes.post("/session", status_code=201, response_model=SessionView, **allows(None, 401, 409, 429))
async def open_session(request: Request, body: SessionRequest) -> Response:
    """Exchange a key for a session, which is a cookie.

    The cookie counts only beside the header `Holdfast-Session: 1`. The session ends with the key, and after 12 hours.
    """
    context = context_of(request)
    caller, digest = await context.keys.sign_in(request, key=body.key, token=body.token)
    response = Response(status_code=201, media_type="application/json")
    session = context.sessions.open(request, response, digest)
    response.body = encode(_view(request, caller, session.ends_at))
    response.headers["content-length"] = str(len(response.body))
    return response


@routes.delete("/session", status_code=204, **allows(Action.SEE))
async def close_session(request: Request) -> Response:
    """End the session in this browser."""
    response = Response(status_code=204)
    context_of(request).sessions.close(request, response)
    return response


def _view(request: Request, caller: Caller, ends_at: datetime | None) -> dict[str, object]:
    return {
        "name": caller.name,
        "role": caller.role,
        "owner": caller.owner,
        "actions": [action for action in Action if caller.role in action.allowed_to],
        "environment": app_of(request).runtime.settings.environment,
        "version": __version__,
        "ends_at": ends_at,
    }

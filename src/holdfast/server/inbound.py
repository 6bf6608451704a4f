"""`/inbound/{webhook_id}`: signed messages (Standard Webhooks) that ask for a retry. The signature is the key."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from pydantic import Field

from holdfast.errors import BadSignature
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, router
from holdfast.server.types import ResponseModel
from holdfast.server.webhooks import WebhookId
from holdfast.webhooks.inbound import NotYours

_SIGNED = ("webhook-id", "webhook-timestamp", "webhook-signature")
_WISH: dict[str, Any] = {
    "type": "object",
    "required": ["action", "job"],
    "properties": {"action": {"type": "string", "enum": ["retry"]}, "job": {"type": "string"}},
    "additionalProperties": False,
}
_DESCRIBED: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _WISH}}},
    "parameters": [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}} for name in _SIGNED
    ],
}


class Accepted(ResponseModel):
    job_id: str = Field(description="The job that will be retried.")


routes = router("webhooks")


@routes.post(
    "/inbound/{webhook_id}",
    status_code=202,
    response_model=Accepted,
    summary="Ask for a retry by a signed message",
    **allows(None, 401, 403, 409, openapi_extra=_DESCRIBED),
)
async def receive_webhook(request: Request, webhook_id: WebhookId) -> Response:
    headers = {name: request.headers.get(name, "") for name in _SIGNED}
    try:
        job_id = await app_of(request).receive_webhook(webhook_id, headers, await request.body())
    except BadSignature as error:
        raise Problem("UNAUTHENTICATED", str(error)) from None
    except NotYours as error:
        raise Problem("FORBIDDEN", str(error)) from None
    return answer({"job_id": job_id}, 202)

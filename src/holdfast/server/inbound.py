"""`/inbound/{webhook_id}`: signed messages (Standard Webhooks) that request a retry. The signature authenticates the sender."""

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
from holdfast.webhooks.inbound import WrongOwner

_SIGNATURE_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["action", "job"],
    "properties": {"action": {"type": "string", "enum": ["retry"]}, "job": {"type": "string"}},
    "additionalProperties": False,
}
_DESCRIBED: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}},
    "parameters": [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
        for name in _SIGNATURE_HEADERS
    ],
}


class Accepted(ResponseModel):
    job_id: str = Field(description="The job that will be retried.")


routes = router("webhooks")


@routes.post(
    "/inbound/{webhook_id}",
    status_code=202,
    response_model=Accepted,
    **allows(None, 401, 403, 409, openapi_extra=_DESCRIBED),
)
async def receive_webhook(request: Request, webhook_id: WebhookId) -> Response:
    """Request a retry by a signed message."""
    headers = {name: request.headers.get(name, "") for name in _SIGNATURE_HEADERS}
    try:
        job_id = await app_of(request).webhooks.receive(webhook_id, headers, await request.body())
    except BadSignature as error:
        raise Problem("UNAUTHENTICATED", str(error)) from None
    except WrongOwner as error:
        raise Problem("FORBIDDEN", str(error)) from None
    return answer({"job_id": job_id}, 202)

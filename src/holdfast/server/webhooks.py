"""`/webhooks`: URLs that receive events, and inbound webhooks that accept signed requests for retries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.redaction import redact_text
from holdfast.server.operations import OperationView, begun_response
from holdfast.server.responses import answer, token_of
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import Note, RequestModel, ResponseModel, Word, picked
from holdfast.webhooks.model import Webhook

_ID = "wh_019a8f6e2a537cc19d0e5f1c7a0b3d42"
WebhookId = Annotated[str, Path(description="The webhook's id.", examples=[_ID], max_length=100)]
EventId = Annotated[str, Field(max_length=30, pattern="^[0-9]+$")]


class WebhookView(ResponseModel):
    id: str = Field(examples=[_ID])
    inbound: bool = Field(description="It receives no events; it accepts messages that request retries.")
    url: str = Field(examples=["https://hooks.example.com/holdfast"])
    events: list[str] = Field(description="Kinds of events; empty: the ends of jobs.")
    owner: str | None = Field(description="The owner of the jobs; null: all owners.")
    description: str
    created_at: datetime
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    secrets: int = Field(description="How many secrets are valid: two during a rotation.")


class WebhookPage(ResponseModel):
    webhooks: list[WebhookView]


class WebhookWithSecret(WebhookView):
    secret: str = Field(description="Shown now and never again.", examples=["whsec_…"])


class WebhookRequest(RequestModel):
    url: Annotated[str, Field(min_length=1, max_length=2048)] = Field(
        examples=["https://hooks.example.com/holdfast"]
    )
    events: list[Word] = Field(
        default_factory=list,
        max_length=50,
        description='Kinds of events; none: the ends of jobs; "*": all.',
        examples=[["complete", "failed"]],
    )
    owner: Word | None = Field(
        default=None, description="Only events of this owner's jobs. A key of an owner may leave it out."
    )
    description: Note = ""


class InboundWebhookRequest(RequestModel):
    owner: Word | None = Field(
        default=None, description="The owner whose jobs it may retry. A key of an owner may leave it out."
    )
    description: Note = ""


class RotateSecretRequest(RequestModel):
    keep_old: bool = Field(
        default=True,
        strict=True,
        description="The old secret stays valid for 24 hours, or until it is retired.",
    )


class ReplayRequest(RequestModel):
    after: EventId = Field(default="0", description="Events after this one …")
    before: EventId | None = Field(default=None, description="… and before this one; null: up to now.")


class TestSent(ResponseModel):
    job_id: str = Field(description="The job that sends it. Its result is the status of the response.")


def view(webhook: Webhook, **more: Any) -> dict[str, Any]:
    url, secrets = redact_text(webhook.url), len(webhook.seeds)
    return picked(webhook, WebhookView, url=url, secrets=secrets) | more


async def own_webhook(request: Request, webhook_id: str) -> Webhook:
    """Return the webhook. Raises `Problem` when the caller may not see it, and `UnknownWebhook` when there is none."""
    webhook = await app_of(request).webhooks.get(webhook_id)
    caller_of(request).must_reach(webhook.owner)
    return webhook


routes = router("webhooks")


@routes.get("/webhooks", response_model=WebhookPage, **allows(Action.SUBSCRIBE))
async def list_webhooks(request: Request) -> Response:
    """List webhooks, oldest first."""
    caller = caller_of(request)
    return answer(
        {
            "webhooks": [
                view(one) for one in await app_of(request).webhooks.list() if caller.reaches(one.owner)
            ]
        }
    )


@routes.post("/webhooks", status_code=201, response_model=WebhookWithSecret, **allows(Action.SUBSCRIBE, 409))
async def create_webhook(request: Request, body: WebhookRequest) -> Response:
    """Create a webhook that sends events to a URL."""
    webhook = await app_of(request).webhooks.create(
        body.url,
        events=body.events,
        owner=caller_of(request).own(body.owner),
        description=body.description,
        token=token_of(request),
    )
    return answer(view(webhook, secret=webhook.secrets[0]), 201)


@routes.post(
    "/webhooks/inbound", status_code=201, response_model=WebhookWithSecret, **allows(Action.SUBSCRIBE, 409)
)
async def create_inbound_webhook(request: Request, body: InboundWebhookRequest) -> Response:
    """Create an inbound webhook that accepts signed requests for retries."""
    webhook = await app_of(request).webhooks.create_inbound(
        owner=caller_of(request).own(body.owner),
        description=body.description,
        token=token_of(request),
    )
    return answer(view(webhook, secret=webhook.secrets[0]), 201)


@routes.get("/webhooks/{webhook_id}", response_model=WebhookView, **allows(Action.SUBSCRIBE))
async def get_webhook(request: Request, webhook_id: WebhookId) -> Response:
    """Get one webhook."""
    return answer(view(await own_webhook(request, webhook_id)))


@routes.delete("/webhooks/{webhook_id}", status_code=204, response_class=Response, **allows(Action.SUBSCRIBE))
async def remove_webhook(request: Request, webhook_id: WebhookId) -> Response:
    """Delete a webhook."""
    await app_of(request).webhooks.remove((await own_webhook(request, webhook_id)).id)
    return Response(status_code=204)


@routes.post(
    "/webhooks/{webhook_id}/rotate-secret", response_model=WebhookWithSecret, **allows(Action.SUBSCRIBE)
)
async def rotate_webhook_secret(
    request: Request, webhook_id: WebhookId, body: RotateSecretRequest | None = None
) -> Response:
    """Rotate the secret of a webhook; for 24 hours messages are signed with both."""
    known = await own_webhook(request, webhook_id)
    keep_old = body is None or body.keep_old
    webhook = await app_of(request).webhooks.rotate_secret(
        known.id, keep_old=keep_old, token=token_of(request)
    )
    return answer(view(webhook, secret=webhook.secrets[0]))


@routes.post("/webhooks/{webhook_id}/retire-secret", response_model=WebhookView, **allows(Action.SUBSCRIBE))
async def retire_webhook_secret(request: Request, webhook_id: WebhookId) -> Response:
    """End a rotation: only the newest secret stays valid."""
    known = await own_webhook(request, webhook_id)
    return answer(view(await app_of(request).webhooks.retire_secret(known.id)))


@routes.post("/webhooks/{webhook_id}/enable", response_model=WebhookView, **allows(Action.SUBSCRIBE))
async def enable_webhook(request: Request, webhook_id: WebhookId) -> Response:
    """Enable a disabled webhook."""
    return answer(view(await app_of(request).webhooks.enable((await own_webhook(request, webhook_id)).id)))


@routes.post("/webhooks/{webhook_id}/disable", response_model=WebhookView, **allows(Action.SUBSCRIBE))
async def disable_webhook(request: Request, webhook_id: WebhookId) -> Response:
    """Disable a webhook until it is enabled."""
    known = await own_webhook(request, webhook_id)
    return answer(
        view(await app_of(request).webhooks.disable(known.id, reason=f"by {caller_of(request).name}"))
    )


@routes.post(
    "/webhooks/{webhook_id}/test", status_code=202, response_model=TestSent, **allows(Action.SUBSCRIBE, 409)
)
async def test_webhook(request: Request, webhook_id: WebhookId) -> Response:
    """Send a test message to a webhook."""
    known = await own_webhook(request, webhook_id)
    return answer({"job_id": await app_of(request).webhooks.test(known.id, token=token_of(request))}, 202)


@routes.post(
    "/webhooks/{webhook_id}/replay",
    status_code=202,
    response_model=OperationView,
    **allows(Action.SUBSCRIBE, 409),
)
async def replay_webhook(
    request: Request, webhook_id: WebhookId, body: ReplayRequest | None = None
) -> Response:
    """Replay events to a webhook, by an operation."""
    known, chosen = await own_webhook(request, webhook_id), body or ReplayRequest()
    before = None if chosen.before is None else int(chosen.before)
    caller = caller_of(request)
    begun = await app_of(request).webhooks.replay(
        known.id,
        after=int(chosen.after),
        before=before,
        by=caller.name,
        for_owner=caller.owner,
        token=token_of(request),
    )
    return begun_response(request, begun)

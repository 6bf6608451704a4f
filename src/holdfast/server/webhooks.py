"""`/webhooks`: who is told of what happens, and who may ask for retries by signed messages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import Field

from holdfast.domain.access import Action
from holdfast.domain.webhook import Webhook
from holdfast.redaction import redact_text
from holdfast.server.operations import OperationView, begun_answer
from holdfast.server.responses import answer, token_of
from holdfast.server.routing import allows, app_of, caller_of, router
from holdfast.server.types import Note, RequestModel, ResponseModel, Word

_ID = "wh_019a8f6e2a537cc19d0e5f1c7a0b3d42"
WebhookId = Annotated[str, Path(description="The webhook's id.", examples=[_ID], max_length=100)]
EventId = Annotated[str, Field(max_length=30, pattern="^[0-9]+$")]


class WebhookView(ResponseModel):
    id: str = Field(examples=[_ID])
    inbound: bool = Field(description="It is not told of events; its messages ask for retries.")
    url: str = Field(examples=["https://hooks.example.com/holdfast"])
    events: list[str] = Field(description="Kinds of events; none: the ends of jobs.")
    owner: str | None = Field(description="Whose jobs it is about; null: everybody's.")
    description: str
    created_at: datetime
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    secrets: int = Field(description="How many are valid: two during a rotation.")


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
    owner: Word | None = Field(default=None, description="Whose jobs. A key of an owner may leave it out.")
    description: Note = ""


class InboundWebhookRequest(RequestModel):
    owner: Word | None = Field(
        default=None, description="Whose jobs it may retry. A key of an owner may leave it out."
    )
    description: Note = ""


class RotateSecretRequest(RequestModel):
    keep_old: bool = Field(
        default=True,
        strict=True,
        description="The old secret stays valid for 24 hours, or until it is retired.",
    )


class ReplayRequest(RequestModel):
    after: EventId = Field(default="0", description="Behind this event …")
    before: EventId | None = Field(default=None, description="… and before this one; null: up to now.")


class TestSent(ResponseModel):
    job_id: str = Field(description="The job that sends it; its result is the status of the answer.")


def view(webhook: Webhook, **more: Any) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "inbound": webhook.inbound,
        "url": redact_text(webhook.url),
        "events": webhook.events,
        "owner": webhook.owner,
        "description": webhook.description,
        "created_at": webhook.created_at,
        "failing_since": webhook.failing_since,
        "disabled_at": webhook.disabled_at,
        "disabled_reason": webhook.disabled_reason,
        "secrets": len(webhook.seeds),
        **more,
    }


async def reached(request: Request, webhook_id: str) -> Webhook:
    """The webhook, where there is one and the caller may reach it."""
    webhook = await app_of(request).webhook(webhook_id)
    caller_of(request).must_reach(webhook.owner)
    return webhook


routes = router("webhooks")


@routes.get(
    "/webhooks", response_model=WebhookPage, summary="Webhooks, oldest first", **allows(Action.SUBSCRIBE)
)
async def list_webhooks(request: Request) -> Response:
    caller = caller_of(request)
    return answer(
        {"webhooks": [view(one) for one in await app_of(request).webhooks() if caller.reaches(one.owner)]}
    )


@routes.post(
    "/webhooks",
    status_code=201,
    response_model=WebhookWithSecret,
    summary="Tell a URL of what happens",
    **allows(Action.SUBSCRIBE, 409),
)
async def create_webhook(request: Request, asked: WebhookRequest) -> Response:
    made = await app_of(request).create_webhook(
        asked.url,
        events=asked.events,
        owner=caller_of(request).own(asked.owner),
        description=asked.description,
        token=token_of(request),
    )
    return answer(view(made, secret=made.secrets[0]), 201)


@routes.post(
    "/webhooks/inbound",
    status_code=201,
    response_model=WebhookWithSecret,
    summary="Let others ask for retries by signed messages",
    **allows(Action.SUBSCRIBE, 409),
)
async def create_inbound_webhook(request: Request, asked: InboundWebhookRequest) -> Response:
    made = await app_of(request).create_inbound_webhook(
        owner=caller_of(request).own(asked.owner),
        description=asked.description,
        token=token_of(request),
    )
    return answer(view(made, secret=made.secrets[0]), 201)


@routes.get(
    "/webhooks/{webhook_id}", response_model=WebhookView, summary="One webhook", **allows(Action.SUBSCRIBE)
)
async def get_webhook(request: Request, webhook_id: WebhookId) -> Response:
    return answer(view(await reached(request, webhook_id)))


@routes.delete(
    "/webhooks/{webhook_id}",
    status_code=204,
    response_class=Response,
    summary="Send it nothing more",
    **allows(Action.SUBSCRIBE),
)
async def remove_webhook(request: Request, webhook_id: WebhookId) -> Response:
    await app_of(request).remove_webhook((await reached(request, webhook_id)).id)
    return Response(status_code=204)


@routes.post(
    "/webhooks/{webhook_id}/rotate-secret",
    response_model=WebhookWithSecret,
    summary="Make a new secret; for 24 hours messages are signed with both",
    **allows(Action.SUBSCRIBE),
)
async def rotate_webhook_secret(
    request: Request, webhook_id: WebhookId, asked: RotateSecretRequest | None = None
) -> Response:
    known = await reached(request, webhook_id)
    keep_old = asked is None or asked.keep_old
    made = await app_of(request).rotate_webhook_secret(known.id, keep_old=keep_old, token=token_of(request))
    return answer(view(made, secret=made.secrets[0]))


@routes.post(
    "/webhooks/{webhook_id}/retire-secret",
    response_model=WebhookView,
    summary="End a rotation: only the newest secret stays valid",
    **allows(Action.SUBSCRIBE),
)
async def retire_webhook_secret(request: Request, webhook_id: WebhookId) -> Response:
    known = await reached(request, webhook_id)
    return answer(view(await app_of(request).retire_webhook_secret(known.id)))


@routes.post(
    "/webhooks/{webhook_id}/enable",
    response_model=WebhookView,
    summary="Begin anew after it was disabled",
    **allows(Action.SUBSCRIBE),
)
async def enable_webhook(request: Request, webhook_id: WebhookId) -> Response:
    return answer(view(await app_of(request).enable_webhook((await reached(request, webhook_id)).id)))


@routes.post(
    "/webhooks/{webhook_id}/disable",
    response_model=WebhookView,
    summary="Send it nothing until it is enabled",
    **allows(Action.SUBSCRIBE),
)
async def disable_webhook(request: Request, webhook_id: WebhookId) -> Response:
    known = await reached(request, webhook_id)
    return answer(
        view(await app_of(request).disable_webhook(known.id, reason=f"by {caller_of(request).name}"))
    )


@routes.post(
    "/webhooks/{webhook_id}/test",
    status_code=202,
    response_model=TestSent,
    summary="Send it a message about nothing",
    **allows(Action.SUBSCRIBE, 409),
)
async def test_webhook(request: Request, webhook_id: WebhookId) -> Response:
    known = await reached(request, webhook_id)
    return answer({"job_id": await app_of(request).test_webhook(known.id, token=token_of(request))}, 202)


@routes.post(
    "/webhooks/{webhook_id}/replay",
    status_code=202,
    response_model=OperationView,
    summary="Begin to send events again; an operation of workers",
    **allows(Action.SUBSCRIBE, 409),
)
async def replay_webhook(
    request: Request, webhook_id: WebhookId, asked: ReplayRequest | None = None
) -> Response:
    known, asked = await reached(request, webhook_id), asked or ReplayRequest()
    before = None if asked.before is None else int(asked.before)
    caller = caller_of(request)
    begun = await app_of(request).replay_webhook(
        known.id,
        after=int(asked.after),
        before=before,
        by=caller.name,
        for_owner=caller.owner,
        token=token_of(request),
    )
    return begun_answer(request, begun)

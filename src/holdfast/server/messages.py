"""`/messages`, `/topics`: list the messages of the outbox; replay, park and discard one."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query, Request, Response
from pydantic import Field

from holdfast.engine.access import Action
from holdfast.errors import UnknownMessage
from holdfast.outbox.model import LONGEST_NAME, Message, MessageState
from holdfast.server.jobs import One
from holdfast.server.models import DiscardRequest
from holdfast.server.pagination import CursorQuery, LimitQuery, capped
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.types import ResponseModel, picked

T = TypeVar("T")

MessagePath = Annotated[
    str, Path(description="The id of the message.", examples=["order-7"], max_length=LONGEST_NAME)
]


class MessageView(ResponseModel):
    number: int = Field(description="The order in which they were stored.")
    id: str
    topic: str
    key: str | None
    state: MessageState
    tries: int = Field(description="Failed tries.")
    error: str | None = Field(description="The error of the last try, or why it is parked.")
    bytes: int = Field(description="The size of its body.")
    headers: dict[str, str]
    created_at: datetime
    not_before: datetime | None
    settled_at: datetime | None = Field(description="When it was published or parked.")


class MessageWithBody(MessageView):
    body: str = Field(description="Text, or hexadecimal digits if the body is not text.")
    is_text: bool


class MessagePage(ResponseModel):
    messages: list[MessageView]
    next: str | None


class TopicView(ResponseModel):
    topic: str
    waiting: int
    parked: int
    oldest_seconds: float | None = Field(description="How long the oldest message has waited.")


class TopicList(ResponseModel):
    topics: list[TopicView]


class MovedMessage(ResponseModel):
    id: str
    state: str = Field(description="waiting, parked or discarded.", examples=["discarded"])


routes = router("messages")


@routes.get("/topics", response_model=TopicList, **allows(Action.LOOK))
async def list_topics(request: Request) -> Response:
    """List topics in which a message waits or is parked."""
    lags = await app_of(request).outbox.lags()
    return answer(
        {
            "topics": [
                {
                    "topic": lag.topic,
                    "waiting": lag.waiting,
                    "parked": lag.parked,
                    "oldest_seconds": None if lag.oldest is None else lag.oldest.total_seconds(),
                }
                for lag in lags
            ]
        }
    )


@routes.get("/messages", response_model=MessagePage, **allows(Action.LOOK))
async def list_messages(
    request: Request,
    topic: One = None,
    key: One = None,
    state: Annotated[MessageState | None, Query()] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> Response:
    """List messages by filter, oldest first."""
    scope, most = ("messages", topic, key, state, caller_of(request).owner), capped(limit)
    app, context = app_of(request), context_of(request)
    shown, upcoming = await context.renderer.page(
        lambda after, limit: app.outbox.list(
            topic=topic, key=key, state=state, after=None if after is None else int(after), limit=limit
        ),
        _view,
        lambda one: str(one.number),
        after=context.pages.open(cursor, *scope),
        most=most,
    )
    return answer({"messages": shown, "next": context.pages.seal(upcoming, *scope)})


@routes.get("/messages/{message_id}", response_model=MessageWithBody, **allows(Action.LOOK))
async def get_message(request: Request, message_id: MessagePath) -> Response:
    """Get one message with its body."""
    found = await _known(app_of(request).outbox.get(message_id))
    return answer(_view(found) | _body(found))


@routes.post("/messages/{message_id}/replay", response_model=MovedMessage, **allows(Action.OPERATE, 409))
async def replay_message(request: Request, message_id: MessagePath) -> Response:
    """Deliver a published or parked message again with its id."""
    await _known(app_of(request).outbox.replay(message_id))
    return answer({"id": message_id, "state": MessageState.WAITING})


@routes.post("/messages/{message_id}/park", response_model=MovedMessage, **allows(Action.OPERATE, 409))
async def park_message(request: Request, message_id: MessagePath, body: DiscardRequest) -> Response:
    """Park a waiting message until it is replayed."""
    await _known(app_of(request).outbox.park(message_id, reason=body.reason))
    return answer({"id": message_id, "state": MessageState.PARKED})


@routes.post("/messages/{message_id}/discard", response_model=MovedMessage, **allows(Action.OPERATE, 409))
async def discard_message(request: Request, message_id: MessagePath, body: DiscardRequest) -> Response:
    """Discard a parked message permanently."""
    by = caller_of(request).name
    await _known(app_of(request).outbox.discard(message_id, reason=body.reason, by=by))
    return answer({"id": message_id, "state": "discarded"})


async def _known(found: Awaitable[T]) -> T:
    try:
        return await found
    except UnknownMessage:
        raise Problem("NOT_FOUND", "no message has this id") from None


def _view(message: Message) -> dict[str, Any]:
    return picked(message, MessageView, bytes=len(message.body), headers=dict(message.headers))


def _body(message: Message) -> dict[str, Any]:
    try:
        return {"body": message.body.decode(), "is_text": True}
    except UnicodeDecodeError:
        return {"body": message.body.hex(), "is_text": False}

"""`/messages`, `/topics`: what is told to others, while it waits, is parked or was published; replay, park and discard one."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query, Request, Response
from pydantic import Field

from holdfast.domain.access import Action
from holdfast.domain.outbox import LONGEST_NAME, Message, MessageState
from holdfast.errors import UnknownMessage
from holdfast.server.jobs import One
from holdfast.server.models import DiscardRequest
from holdfast.server.pagination import CursorQuery, LimitQuery, capped
from holdfast.server.problems import Problem
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, caller_of, context_of, router
from holdfast.server.types import ResponseModel

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
    tries: int = Field(description="That failed.")
    error: str | None = Field(description="Of the last try, or why it is parked.")
    bytes: int = Field(description="Of its body.")
    headers: dict[str, str]
    created_at: datetime
    not_before: datetime | None
    settled_at: datetime | None = Field(description="When it was published or parked.")


class MessageWithBody(MessageView):
    body: str = Field(description="As text; what is none, as hexadecimal digits.")
    is_text: bool


class MessagePage(ResponseModel):
    messages: list[MessageView]
    next: str | None


class TopicView(ResponseModel):
    topic: str
    waiting: int
    parked: int
    oldest_seconds: float | None = Field(description="How long the one that has waited longest has waited.")


class Topics(ResponseModel):
    topics: list[TopicView]


class MovedMessage(ResponseModel):
    id: str
    state: str = Field(description="waiting, parked, or discarded: then it is gone.", examples=["discarded"])


routes = router("messages")


@routes.get(
    "/topics",
    response_model=Topics,
    summary="How topics stand in which a message waits or is parked",
    **allows(Action.LOOK),
)
async def list_topics(request: Request) -> Response:
    lags = await app_of(request).message_lags()
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


@routes.get(
    "/messages",
    response_model=MessagePage,
    summary="Messages by filter, oldest first",
    **allows(Action.LOOK),
)
async def list_messages(
    request: Request,
    topic: One = None,
    key: One = None,
    state: Annotated[MessageState | None, Query()] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> Response:
    of, most = ("messages", topic, key, state, caller_of(request).owner), capped(limit)
    app, door = app_of(request), context_of(request)
    shown, upcoming = await door.renderer.page(
        lambda after, limit: app.messages(
            topic=topic, key=key, state=state, after=None if after is None else int(after), limit=limit
        ),
        _view,
        lambda one: str(one.number),
        after=door.pages.open(cursor, *of),
        most=most,
    )
    return answer({"messages": shown, "next": door.pages.seal(upcoming, *of)})


@routes.get(
    "/messages/{message_id}",
    response_model=MessageWithBody,
    summary="One message, with its body",
    **allows(Action.LOOK),
)
async def get_message(request: Request, message_id: MessagePath) -> Response:
    found = await _known(app_of(request).message(message_id))
    return answer(_view(found) | _body(found))


@routes.post(
    "/messages/{message_id}/replay",
    response_model=MovedMessage,
    summary="Deliver a published or parked one once more, under its id",
    **allows(Action.OPERATE, 409),
)
async def replay_message(request: Request, message_id: MessagePath) -> Response:
    await _known(app_of(request).replay_message(message_id))
    return answer({"id": message_id, "state": MessageState.WAITING})


@routes.post(
    "/messages/{message_id}/park",
    response_model=MovedMessage,
    summary="Take a waiting one out of line until it is replayed",
    **allows(Action.OPERATE, 409),
)
async def park_message(request: Request, message_id: MessagePath, body: DiscardRequest) -> Response:
    await _known(app_of(request).park_message(message_id, reason=body.reason))
    return answer({"id": message_id, "state": MessageState.PARKED})


@routes.post(
    "/messages/{message_id}/discard",
    response_model=MovedMessage,
    summary="Give a parked one up, for good",
    **allows(Action.OPERATE, 409),
)
async def discard_message(request: Request, message_id: MessagePath, body: DiscardRequest) -> Response:
    by = caller_of(request).name
    await _known(app_of(request).discard_message(message_id, reason=body.reason, by=by))
    return answer({"id": message_id, "state": "discarded"})


async def _known(found: Awaitable[T]) -> T:
    try:
        return await found
    except UnknownMessage:
        raise Problem("NOT_FOUND", "no message has this id") from None


def _view(message: Message) -> dict[str, Any]:
    return {
        "number": message.number,
        "id": message.id,
        "topic": message.topic,
        "key": message.key,
        "state": message.state,
        "tries": message.tries,
        "error": message.error,
        "bytes": len(message.body),
        "headers": dict(message.headers),
        "created_at": message.created_at,
        "not_before": message.not_before,
        "settled_at": message.settled_at,
    }


def _body(message: Message) -> dict[str, Any]:
    try:
        return {"body": message.body.decode(), "is_text": True}
    except UnicodeDecodeError:
        return {"body": message.body.hex(), "is_text": False}

"""The shapes that both databases give to messages: columns of new ones, rows as values, and where one stands."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from holdfast.domain.outbox import Message, MessageState, NewMessage
from holdfast.stores.encoding import Moment, Row, from_json, maybe, to_json


class Line(IntEnum):
    """Where a message stands. Only those in line are looked at by who takes; see `take_messages`."""

    IN_LINE = 0
    BEHIND = 1  #: an older one of its key keeps it
    AWAY = 2  #: taken or put off, until *not_before*
    PARKED = 3
    PUBLISHED = 4


_STATES = {Line.PARKED: MessageState.PARKED, Line.PUBLISHED: MessageState.PUBLISHED}


def message_columns(message: NewMessage) -> tuple[str, str, str | None, bytes, str]:
    headers = to_json(dict(message.headers))
    return message.id, message.topic, message.key, bytes(message.body), headers


def message(row: Row, moment: Moment) -> Message:
    return Message(
        number=row["number"],
        id=row["id"],
        topic=row["topic"],
        key=row["key"],
        body=row["body"],
        headers=from_json(row["headers"]),
        state=_STATES.get(row["line"], MessageState.WAITING),
        tries=row["tries"],
        unreached=row["unreached"],
        error=row["error"],
        created_at=moment(row["created_at"]),
        not_before=maybe(row["not_before"], moment),
        settled_at=maybe(row["settled_at"], moment),
    )


def discarded(message_id: str, topic: str, error: str | None, by: str, reason: str) -> dict[str, str]:
    """What the event of a discarded message says; *error* is why it was parked."""
    return {"message": message_id, "topic": topic, "error": error or "", "by": by, "reason": reason}


def lines_of(state: MessageState) -> Sequence[Line]:
    """The lines that people know by one word."""
    return [line for line in Line if _STATES.get(line, MessageState.WAITING) is state]

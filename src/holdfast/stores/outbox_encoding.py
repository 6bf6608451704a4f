"""Encode and decode the rows of messages."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from holdfast.engine.ports import Row
from holdfast.outbox.model import Message, MessageState, NewMessage
from holdfast.stores.encoding import from_json, to_json, value_of


class Line(IntEnum):
    """The state of a message as its row has it. A relay takes messages of the first line only."""

    IN_LINE = 0
    BEHIND = 1  #: an older message of its key has to leave first
    AWAY = 2  #: taken or put off, until *not_before*
    PARKED = 3
    PUBLISHED = 4


_STATES = {Line.PARKED: MessageState.PARKED, Line.PUBLISHED: MessageState.PUBLISHED}


def message_columns(message: NewMessage) -> tuple[str, str, str | None, bytes, str]:
    headers = to_json(dict(message.headers))
    return message.id, message.topic, message.key, bytes(message.body), headers


def message(row: Row) -> Message:
    state = _STATES.get(row["line"], MessageState.WAITING)
    return value_of(Message, row, headers=from_json(row["headers"]), state=state)


def discarded(message_id: str, topic: str, error: str | None, by: str, reason: str) -> dict[str, str]:
    """Return the meta of the event of a discarded message. *error* is why it was parked."""
    return {"message": message_id, "topic": topic, "error": error or "", "by": by, "reason": reason}


def lines_of(state: MessageState) -> Sequence[Line]:
    """Return the lines whose messages are in this state."""
    return [line for line in Line if _STATES.get(line, MessageState.WAITING) is state]

"""What a relay sends of the messages it has in hand, and what it does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.outbox.model import DEADLINE, Delivered, Message, MessageState, Taken, TopicPolicy, deadline_of
from holdfast.outbox.relay.batch import EXPIRED, MessageBatch
from holdfast.wiring import SystemRng

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def taken(number: int, key: str | None = None, deadline: str | None = None) -> Taken:
    message = Message(
        number=number,
        id=str(number),
        topic="mail",
        key=key,
        body=b"",
        headers={} if deadline is None else {DEADLINE: deadline},
        state=MessageState.WAITING,
        tries=0,
        error=None,
        created_at=NOON,
        not_before=NOON,
        settled_at=None,
    )
    return Taken(message, 1)


def numbers(wave: list[Taken]) -> list[int]:
    return [one.message.number for one in wave]


def test_a_message_leaves_at_its_deadline_and_not_after_it() -> None:  # E15
    def wave_at(now: datetime) -> list[int]:
        return numbers(
            MessageBatch([taken(1, deadline=NOON.isoformat())], {"mail": TopicPolicy()}).next_wave(now)
        )

    assert wave_at(NOON) == [1]
    assert wave_at(NOON + timedelta(microseconds=1)) == []


def test_one_that_expires_while_others_are_sent_is_given_up_and_holds_up_nobody() -> None:  # E15
    first, second, third = taken(1, "a"), taken(2, "a", NOON.isoformat()), taken(3, "a")
    batch = MessageBatch([first, second, third], {"mail": TopicPolicy()})
    assert numbers(batch.next_wave(NOON)) == [1]
    batch.record([first], [Delivered()])
    assert numbers(batch.next_wave(NOON + timedelta(seconds=1))) == [3]
    batch.record([third], [Delivered()])
    assert batch.expired == [second]
    [told] = batch.put_off(timedelta(), SystemRng())
    assert (told.taken, told.wait, told.error, told.tried) == (second, None, EXPIRED, False)
    assert batch.unavailable_reason is None
    assert batch.parked == []


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01T12:00:00", "9" * 500])
def test_a_deadline_that_cannot_be_read_is_none(text: str) -> None:
    assert deadline_of({DEADLINE: text}) is None

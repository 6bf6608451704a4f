"""The messages that a relay has taken, and the outcome of each. No I/O.

Only one message of a key is sent at a time: if the second were sent before the first is confirmed, and the
first refused, they would arrive in the wrong order. Messages without a key, and the first of every key, are
sent together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.jobs.machine import Rng
from holdfast.outbox.model import Delivered, Delivery, Taken, TopicPolicy, Undelivered, deadline_of
from holdfast.outbox.port import PutOff

BEHIND = "waits behind a message of its key"
UNSENT = "released: the relay was stopped"
EXPIRED = "not delivered: its deadline has passed"

OrderKey = tuple[str, str]  #: topic and key: messages with the same one stay in order


class MessageBatch:
    """A batch of taken messages, sent in waves."""

    def __init__(self, taken: Sequence[Taken], topics: Mapping[str, TopicPolicy]) -> None:
        self._topics = topics
        self._unsent = list(taken)
        self._out: list[Taken] = []  #: sent, and not answered yet
        self._blocked: set[OrderKey] = set()  #: whose first message could not be delivered
        self._failed: list[tuple[Taken, Undelivered]] = []
        self.delivered: list[Taken] = []
        self.expired: list[Taken] = []  #: never sent, because their deadline passed

    def next_wave(self, now: datetime) -> list[Taken]:
        """Return the messages to send at *now* by the store's clock, or none if the batch is finished.

        Messages whose deadline has passed move to `expired`.
        """
        expired = {one.message.number for one in self._unsent if _is_past(one, now)}
        self.expired += [one for one in self._unsent if one.message.number in expired]
        self._unsent = [one for one in self._unsent if one.message.number not in expired]
        wave, rest, used = [], [], set(self._blocked)
        for one in self._unsent:
            order_key = _order_key(one)
            if order_key is None or order_key not in used:
                wave.append(one)
                if order_key is not None:
                    used.add(order_key)
            else:
                rest.append(one)
        self._unsent, self._out = rest, wave
        return wave

    def record(self, wave: Sequence[Taken], answers: Sequence[Delivery]) -> None:
        """Record the *answers* of the target to the messages of a wave."""
        self._out = []
        for one, answer in zip(wave, answers, strict=True):
            if isinstance(answer, Delivered):
                self.delivered.append(one)
                continue
            self._failed.append((one, answer))
            order_key = _order_key(one)
            if order_key is not None and (
                not self._is_parked(one, answer) or self._topics[order_key[0]].strict
            ):
                self._blocked.add(order_key)

    @property
    def unavailable_reason(self) -> str | None:
        """Why the target could not be reached with any message, or None if it could."""
        if self.delivered or not self._failed or not all(answer.away for _, answer in self._failed):
            return None
        return self._failed[0][1].error

    @property
    def parked(self) -> list[tuple[Taken, str]]:
        """The messages to park, each with the reason."""
        return [(one, answer.error) for one, answer in self._failed if self._is_parked(one, answer)]

    def put_off(self, rest: timedelta, rng: Rng) -> list[PutOff]:
        """Return what to record in the store for the messages that were not delivered.

        *rest* is how long messages wait at least if the target could not be reached.
        """
        put_off = []
        for one, answer in self._failed:
            if answer.away:
                put_off.append(
                    PutOff(one, max(rest, answer.after or rest), answer.error, tried=False, away=True)
                )
            else:
                put_off.append(PutOff(one, self._wait(one, answer, rng.random()), answer.error))
        put_off += [
            PutOff(one, timedelta(), BEHIND if _order_key(one) in self._blocked else UNSENT, tried=False)
            for one in (*self._out, *self._unsent)
        ]
        put_off += [PutOff(one, None, EXPIRED, tried=False) for one in self.expired]
        return put_off

    def _wait(self, one: Taken, answer: Undelivered, chance: float) -> timedelta | None:
        return self._topics[one.message.topic].after(one.message.tries + 1, answer, chance)

    def _is_parked(self, one: Taken, answer: Undelivered) -> bool:
        return not answer.away and self._wait(one, answer, 0.0) is None


def _is_past(one: Taken, now: datetime) -> bool:
    deadline = deadline_of(one.message.headers)
    return deadline is not None and now > deadline


def _order_key(one: Taken) -> OrderKey | None:
    return None if one.message.key is None else (one.message.topic, one.message.key)

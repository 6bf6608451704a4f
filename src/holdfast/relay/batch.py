"""The messages a relay has in hand, and what is known of each. Pure.

Of one key only one is sent at a time: were the second sent before the first is confirmed, and the first refused, they would
arrive in the wrong order. Those without a key, and the first of every key, go together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.domain.outbox import Delivered, Delivery, Taken, TopicPolicy, Undelivered, deadline_of
from holdfast.engine.outbox_store import PutOff
from holdfast.engine.ports import Rng

BEHIND = "waits behind one of its key"
UNSENT = "given back: the relay was told to end"
EXPIRED = "not delivered: its deadline has passed"

Line = tuple[str, str]  #: topic and key: where order counts


class MessageBatch:
    def __init__(self, taken: Sequence[Taken], topics: Mapping[str, TopicPolicy]) -> None:
        self._topics = topics
        self._unsent = list(taken)
        self._out: list[Taken] = []  #: sent, and not answered yet
        self._held: set[Line] = set()  #: whose first one could not be delivered
        self._failed: list[tuple[Taken, Undelivered]] = []
        self.delivered: list[Taken] = []
        self.expired: list[Taken] = []  #: never sent, and given up

    def next_wave(self, now: datetime) -> list[Taken]:
        """What can be sent at *now*, by the store's clock; empty: no more of this batch. What is past its deadline is not."""
        gone = {one.message.number for one in self._unsent if _is_past(one, now)}
        self.expired += [one for one in self._unsent if one.message.number in gone]
        self._unsent = [one for one in self._unsent if one.message.number not in gone]
        wave, rest, seen = [], [], set(self._held)
        for one in self._unsent:
            line = _line(one)
            if line is None or line not in seen:
                wave.append(one)
                if line is not None:
                    seen.add(line)
            else:
                rest.append(one)
        self._unsent, self._out = rest, wave
        return wave

    def note(self, wave: Sequence[Taken], answers: Sequence[Delivery]) -> None:
        self._out = []
        for one, answer in zip(wave, answers, strict=True):
            if isinstance(answer, Delivered):
                self.delivered.append(one)
                continue
            self._failed.append((one, answer))
            line = _line(one)
            if line is not None and (not self._is_parked(one, answer) or self._topics[line[0]].strict):
                self._held.add(line)

    @property
    def away(self) -> str | None:
        """Why nobody was there for any of those that were tried; None: somebody was."""
        if self.delivered or not self._failed or not all(answer.away for _, answer in self._failed):
            return None
        return self._failed[0][1].error

    @property
    def parked(self) -> list[tuple[Taken, str]]:
        return [(one, answer.error) for one, answer in self._failed if self._is_parked(one, answer)]

    def put_off(self, rest: timedelta, rng: Rng) -> list[PutOff]:
        """What the store is to be told of those that were not delivered. *rest*: when nobody was there, for how long."""
        told = []
        for one, answer in self._failed:
            if answer.away:
                told.append(
                    PutOff(one, max(rest, answer.after or rest), answer.error, tried=False, away=True)
                )
            else:
                told.append(PutOff(one, self._wait(one, answer, rng.random()), answer.error))
        told += [
            PutOff(one, timedelta(), BEHIND if _line(one) in self._held else UNSENT, tried=False)
            for one in (*self._out, *self._unsent)
        ]
        told += [PutOff(one, None, EXPIRED, tried=False) for one in self.expired]
        return told

    def _wait(self, one: Taken, answer: Undelivered, chance: float) -> timedelta | None:
        return self._topics[one.message.topic].after(one.message.tries + 1, answer, chance)

    def _is_parked(self, one: Taken, answer: Undelivered) -> bool:
        return not answer.away and self._wait(one, answer, 0.0) is None


def _is_past(one: Taken, now: datetime) -> bool:
    deadline = deadline_of(one.message.headers)
    return deadline is not None and now > deadline


def _line(one: Taken) -> Line | None:
    return None if one.message.key is None else (one.message.topic, one.message.key)

"""Wake-ups: who writes in this process rings; what other processes write is found by looking, every few milliseconds.

A look takes microseconds and no lock. It is quick while jobs flow and slower when nothing happens.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.domain.job import Lane
from holdfast.engine.ports import Clock
from holdfast.stores.sqlite.holds import open_lanes
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.many_lanes import FEW
from holdfast.stores.sqlite.move import SQL
from holdfast.stores.sqlite.times import micros

#: How often to look: as quick as this while jobs flow, down to this when nothing happens.
LOOK_QUICK, LOOK_IDLE = 0.002, 0.100
#: How long after the last work the look stays quick. Then it takes its time: this part of how long nothing has happened.
QUICK_FOR, PART_OF_IDLE = 2.0, 0.02
#: How long a lane that somebody else has made may stay unknown.
RENEW_EVERY = 0.5
#: How long to wait after a claim that found work and could not have it: limits and keys are freed elsewhere too.
VAIN_FOR = 0.050


#: How many lists of lanes are remembered.
MOST_QUESTIONS = 16


class _Question(NamedTuple):
    lanes: Sequence[Lane]
    at: float
    sql: str
    many: Mapping[int, Lane] | None = None  #: by number, where they are many


class Notifier:
    """*connection* is for queries only: a long query must not keep a claim waiting."""

    def __init__(self, connection: sqlite3.Connection, lanes: LaneNumbers, clock: Clock) -> None:
        self._connection, self._lanes, self._clock = connection, lanes, clock
        self._event: asyncio.Event | None = None
        self._busy_at = self._vain_until = 0.0
        self._questions: dict[int, _Question] = {}  #: by the lists of lanes that were asked for

    def poll_quickly(self) -> None:
        """Jobs flow."""
        self._busy_at = self._clock.monotonic()

    def notify(self) -> None:
        """Wake who waits in this process."""
        self.poll_quickly()
        self._vain_until = 0.0
        if self._event is not None:
            self._event.set()

    def found_nothing(self, lanes: Sequence[Lane]) -> None:
        """A claim came back empty. If there is work all the same, it is out of reach: who waits is not sent back at once."""
        if self.has_work(lanes):
            self._vain_until = self._clock.monotonic() + VAIN_FOR

    def calls(self, lanes: Sequence[Lane]) -> bool:
        """Whether to stop waiting for work: there is some, nothing holds it, and the last claim was not in vain just now."""
        if self._clock.monotonic() < self._vain_until or not self.has_work(lanes):
            return False
        return self._unheld_work(lanes)

    def _unheld_work(self, lanes: Sequence[Lane]) -> bool:
        now, many = micros(self._clock.now()), self._question_of(lanes).many
        if many is not None:
            rows = self._waiting().fetchall()
            waiting = [many[lane] for lane, _, _ in rows if lane in many]
            unseen = len(rows) == FEW or not waiting  # there may be more of them, or a job is due
            return unseen or bool(open_lanes(self._connection, now, waiting, trial=False))
        unheld = open_lanes(self._connection, now, lanes, trial=False)
        return unheld is lanes or self._look(self._sql(unheld))

    def has_work(self, lanes: Sequence[Lane]) -> bool:
        """Whether any of these lines has somebody in it, or somebody is due: microseconds, and no lock."""
        question = self._question_of(lanes)
        if question.many is not None:
            rows = self._waiting().fetchall()
            # If there are more lines behind those, a claim has to find out.
            if len(rows) == FEW or any(lane in question.many for lane, _, _ in rows):
                return True
        return self._look(question.sql)

    def _waiting(self) -> sqlite3.Cursor:
        """The first lines of any lanes that have jobs waiting."""
        return self._connection.execute(SQL["waiting"], {"lane": -1, "prio": 0, "limit": FEW})

    def _question_of(self, lanes: Sequence[Lane]) -> _Question:
        """What to ask for these lanes, remembered for as long as the same list is asked for."""
        now, question = self._clock.monotonic(), self._questions.get(id(lanes))
        if question is None or question.lanes is not lanes or now > question.at + RENEW_EVERY:
            self._lanes.remember(self._connection)
            if len(lanes) > FEW:
                question = _Question(
                    lanes, now, f"SELECT coalesce((\n{SQL['due']}) <= :now, 0)", self._lanes.by_name(lanes)
                )
            else:
                question = _Question(lanes, now, self._sql(lanes))
            if len(self._questions) >= MOST_QUESTIONS:
                self._questions.clear()
            self._questions[id(lanes)] = question
        return question

    def _look(self, question: str) -> bool:
        found = self._connection.execute(question, {"now": micros(self._clock.now())}).fetchone()
        return bool(found[0])

    def _sql(self, lanes: Sequence[Lane]) -> str:
        listed = ", ".join(map(str, self._lanes.numbers(lanes)))
        return (
            f"SELECT EXISTS (SELECT 1 FROM holdfast_job WHERE phase = 0 AND lane IN ({listed or 'NULL'}))"
            f" OR coalesce((\n{SQL['due']}) <= :now, 0)"
        )

    async def wait(self, happened: Callable[[], bool], timeout: float) -> None:
        """Until it has *happened*, or *timeout*. Who rings makes us look at once."""
        until = self._clock.monotonic() + timeout
        self._event = event = self._event or asyncio.Event()
        loop = asyncio.get_running_loop()
        while not happened():
            now = self._clock.monotonic()
            if now >= until:
                return
            event.clear()
            pause = min(self._pause(now), until - now)
            timer = loop.call_later(pause, event.set)  # cheaper than a timeout around the wait
            try:
                await event.wait()
            finally:
                timer.cancel()

    def _pause(self, now: float) -> float:
        idle = now - self._busy_at
        return LOOK_QUICK if idle < QUICK_FOR else min(idle * PART_OF_IDLE, LOOK_IDLE)

    def close(self) -> None:
        self._connection.close()

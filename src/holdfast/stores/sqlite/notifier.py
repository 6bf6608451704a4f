"""Wake up callers that wait for work. Writes of this process notify them; writes of others are found by polling.

A poll takes microseconds and no lock. It happens every few milliseconds while there is work, and more rarely when there is none.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.jobs.job import Lane
from holdfast.jobs.machine import Clock
from holdfast.stores.sqlite.holds import open_lanes
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.many_lanes import FEW
from holdfast.stores.sqlite.move import SQL
from holdfast.stores.sqlite.times import micros

#: The shortest and the longest time between two polls, in seconds.
LOOK_QUICK, LOOK_IDLE = 0.002, 0.100
#: Polls stay quick for this many seconds after the last work. Then the time between two of them is this part of the idle time.
QUICK_FOR, PART_OF_IDLE = 2.0, 0.02
#: How many seconds a lane that another process has created may stay unknown.
RENEW_EVERY = 0.5
#: How many seconds to wait after a claim that could not take the work that is there: other processes free limits and keys too.
VAIN_FOR = 0.050


#: How many lists of lanes are remembered.
MOST_QUESTIONS = 16


class _Question(NamedTuple):
    lanes: Sequence[Lane]
    at: float
    sql: str
    many: Mapping[int, Lane] | None = None  #: by number, where they are many


class Notifier:
    """Polls the file on a *connection* of its own, so that a long query delays no claim, and wakes the callers of this process."""

    def __init__(self, connection: sqlite3.Connection, lanes: LaneNumbers, clock: Clock) -> None:
        self._connection, self._lanes, self._clock = connection, lanes, clock
        self._event: asyncio.Event | None = None
        self._busy_at = self._vain_until = 0.0
        self._questions: dict[int, _Question] = {}  #: by the lists of lanes that were asked for

    def poll_quickly(self) -> None:
        """Poll quickly from now on, because there is work."""
        self._busy_at = self._clock.monotonic()

    def notify(self) -> None:
        """Wake the callers that wait in this process."""
        self.poll_quickly()
        self._vain_until = 0.0
        if self._event is not None:
            self._event.set()

    def found_nothing(self, lanes: Sequence[Lane]) -> None:
        """Record that a claim of these lanes returned nothing.

        If they have work, limits or keys keep it from being claimed, and callers wait a little before they try again.
        """
        if self.has_work(lanes):
            self._vain_until = self._clock.monotonic() + VAIN_FOR

    def calls(self, lanes: Sequence[Lane]) -> bool:
        """Return whether to stop waiting: there is work, nothing holds it, and no claim has just failed to take it."""
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
        """Return whether a lane of these has queued jobs, or any deferred job is due. It takes microseconds and no lock."""
        question = self._question_of(lanes)
        if question.many is not None:
            rows = self._waiting().fetchall()
            # If there may be more lanes behind these, only a claim can find out.
            if len(rows) == FEW or any(lane in question.many for lane, _, _ in rows):
                return True
        return self._look(question.sql)

    def _waiting(self) -> sqlite3.Cursor:
        """Read the first lanes that have queued jobs."""
        return self._connection.execute(SQL["waiting"], {"lane": -1, "prio": 0, "limit": FEW})

    def _question_of(self, lanes: Sequence[Lane]) -> _Question:
        """Return the query for these lanes. It is cached while callers pass the same list."""
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
        """Return once *happened* returns true, or after *timeout* seconds. It is called at once after each `notify`."""
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

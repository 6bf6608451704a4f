"""Wake-ups: who writes in this process rings; what other processes write is found by looking, every few milliseconds.

A look takes microseconds and no lock. It is quick while jobs flow and slower when nothing happens.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence

from holdfast.domain.job import Lane
from holdfast.engine.ports import Clock
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.times import micros

#: How often to look: as quick as this while jobs flow, up to this when nothing happens.
LOOK_QUICK, LOOK_IDLE = 0.002, 0.040
#: How long after the last work the look stays quick.
QUICK_FOR = 2.0
#: How long a lane that somebody else has made may stay unknown.
RENEW_EVERY = 0.5


class Bell:
    """*connection* is for looking only: whoever reads something long must not keep a claim waiting."""

    def __init__(self, connection: sqlite3.Connection, lanes: LaneNumbers, clock: Clock) -> None:
        self._connection, self._lanes, self._clock = connection, lanes, clock
        self._event: asyncio.Event | None = None
        self._busy_until = 0.0
        self._asked: Sequence[Lane] | None = None
        self._asked_at, self._sql = 0.0, ""

    def stay_quick(self) -> None:
        """Jobs flow."""
        self._busy_until = self._clock.monotonic() + QUICK_FOR

    def ring(self) -> None:
        """Wake who waits in this process."""
        self.stay_quick()
        if self._event is not None:
            self._event.set()

    def has_work(self, lanes: Sequence[Lane]) -> bool:
        """Whether any of these lines has somebody in it, or somebody is due: microseconds, and no lock."""
        now = self._clock.monotonic()
        if lanes is not self._asked or now > self._asked_at + RENEW_EVERY:
            self._lanes.remember(self._connection)
            numbers = self._lanes.numbers(lanes)
            self._asked, self._asked_at = lanes, now
            self._sql = (
                f"SELECT EXISTS (SELECT 1 FROM holdfast_job WHERE phase = 0 AND lane IN ({', '.join(map(str, numbers)) or 'NULL'}))"
                " OR EXISTS (SELECT 1 FROM holdfast_job WHERE phase = 1 AND run_at <= ?)"
            )
        found = self._connection.execute(self._sql, (micros(self._clock.now()),)).fetchone()
        return bool(found[0])

    async def wait(self, happened: Callable[[], bool], timeout: float) -> None:
        """Until it has *happened*, or *timeout*. Who rings makes us look at once."""
        until = self._clock.monotonic() + timeout
        self._event = event = self._event or asyncio.Event()
        loop = asyncio.get_running_loop()
        while not happened():
            now = self._clock.monotonic()
            if now >= until:
                return
            pause = LOOK_QUICK if now < self._busy_until else LOOK_IDLE
            event.clear()
            timer = loop.call_later(
                min(pause, until - now), event.set
            )  # cheaper than a timeout around the wait
            try:
                await event.wait()
            finally:
                timer.cancel()

    def close(self) -> None:
        self._connection.close()

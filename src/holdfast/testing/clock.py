"""`ManualClock`: a clock that moves only when a test advances it."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

from holdfast.errors import UsageError
from holdfast.values.duration import Duration, duration

#: The default start: always the same, so that a test behaves the same every day.
START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A `Clock` for tests.

    `advance("1m")` moves wall-clock and monotonic time and wakes the sleepers that are due.
    """

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise UsageError(
                "start has no time zone; pass an aware datetime, e.g. datetime.now(timezone.utc)"
            )
        self._start, self._passed = start.astimezone(UTC), timedelta()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def now(self) -> datetime:
        return self._start + self._passed

    def monotonic(self) -> float:
        # Not from zero, because a store may use zero for "never".
        return 1000.0 + self._passed.total_seconds()

    def boot_id(self) -> str:
        return "manual"

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by *seconds*."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until = self._passed + timedelta(seconds=seconds)
        heapq.heappush(self._sleepers, (until, next(self._numbers), woken))
        await woken

    def advance(self, by: Duration) -> datetime:
        """Move the clock and return the new time.

        Sleepers that are due continue when the caller next awaits.
        """
        self._passed += duration(by)
        while self._sleepers and self._sleepers[0][0] <= self._passed:
            _, _, woken = heapq.heappop(self._sleepers)
            try:  # from any thread: a test without a loop may move the clock of an app that has one
                woken.get_loop().call_soon_threadsafe(_wake, woken)
            except RuntimeError:  # that loop is closed, and its sleepers with it
                continue
        return self.now()


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)

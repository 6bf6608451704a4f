"""A circuit breaker for each customer and host: a customer whose calls fail waits alone.

```text
closed ──10 failures of one customer, or 2 each of 3 customers──▶ held for those that failed ──one trial a cooldown──▶ closed
```

A customer is held at a place (host and port) only if its own calls have failed there since the last success,
so one customer cannot stop the calls of another. The engine's breakers would hold a whole lane, and with it
all hosts of a shard (docs/adr/0018-customers-pages.md).

The table is bounded: a place belongs to one of 64 shards by its hash, a shard keeps its newest rows, and rows
expire. Losing a row only closes the breaker of that customer and place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from zlib import crc32

from holdfast.logging import Log
from systems.screenshots.codes import Code
from systems.screenshots.records import Books

log = Log("screenshots.hosts")

SHARDS, ROWS_PER_SHARD = 64, 100
#: The failures in a row that hold a customer.
ALONE = 10
#: The failures in a row that hold a customer where this number of customers, itself included, has as many.
TOGETHER, CUSTOMERS = 2, 3
COOLDOWN, LONGEST_COOLDOWN = 30.0, 600.0
EXPIRES_AFTER = 3_600.0
#: The codes of a place that is down. All others mean that it answered, or say nothing about it.
DOWN = frozenset({Code.CONNECTION_FAILED, Code.NAVIGATION_TIMEOUT})

_SELECT = "SELECT owner, failures, at FROM screenshots_host WHERE shard = $1 AND place = $2 AND at > $3"
_START_TRIAL = """UPDATE screenshots_host SET at = $5
    WHERE shard = $1 AND place = $2 AND owner = $3 AND at = $4 RETURNING owner"""
_FAIL = """INSERT INTO screenshots_host (shard, place, owner, failures, at) VALUES ($1, $2, $3, 1, $4)
    ON CONFLICT (shard, place, owner) DO UPDATE SET at = excluded.at,
      failures = CASE WHEN screenshots_host.at > $5 THEN screenshots_host.failures + 1 ELSE 1 END"""
_TRIM = f"""DELETE FROM screenshots_host WHERE shard = $1 AND at < (
    SELECT at FROM screenshots_host WHERE shard = $1 ORDER BY at DESC LIMIT 1 OFFSET {ROWS_PER_SHARD - 1})"""
# A success shows that the place is up. Customers with many failures of their own are calling something else
# there.
_SUCCEED = f"""DELETE FROM screenshots_host
    WHERE shard = $1 AND place = $2 AND (owner = $3 OR failures < {ALONE})"""


class Failing(NamedTuple):
    """A customer's failures in a row at one place."""

    owner: str
    failures: int
    at: float  #: of the last failure, or of the trial after it

    @property
    def next_at(self) -> float:
        """Return the time at which one trial call may be made.

        The wait doubles with each failure above `ALONE`, up to a limit.
        """
        doubled = 2.0 ** min(max(self.failures - ALONE, 0), 10)
        return self.at + min(COOLDOWN * doubled, LONGEST_COOLDOWN)


def place_of(url: str) -> str:
    """Return the host and port of an accepted URL."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme.lower() == "https" else 80)
    return f"{(parts.hostname or '').rstrip('.')}:{port}"


def shard_of(place: str) -> int:
    """Return the number of the shard of *place*."""
    return crc32(place.encode()) % SHARDS


def is_held(own: Failing, all_failing: list[Failing]) -> bool:
    """Return whether the customer of *own* is held, given the failures of all customers at the same place."""
    if own.failures >= ALONE:
        return True
    enough_customers = sum(one.failures >= TOGETHER for one in all_failing) >= CUSTOMERS
    return enough_customers and own.failures >= TOGETHER


class Hosts:
    """The breaker, shared by all workers through the database.

    Every call is allowed while that is unavailable.
    """

    def __init__(self, books: Books, now: Callable[[], float] = time.time) -> None:
        self._books, self._now = books, now

    async def wait(self, place: str, owner: str) -> float:
        """Return how many seconds *owner* must wait before calling *place*.

        0 means to call now, possibly as the one trial after a cooldown.
        """
        try:
            return await self._wait(place, owner, self._now())
        except Exception as error:
            log.warning("host_breaker.unavailable", reason=type(error).__name__)
            return 0.0

    async def record(self, place: str, owner: str, code: Code | None) -> None:
        """Record the outcome of a call of *owner* to *place*; *code* is None for a success."""
        try:
            if code is None:
                await self._succeed(place, owner)
            elif code in DOWN:
                await self._fail(place, owner, self._now())
        except Exception as error:
            log.warning("host_breaker.unavailable", reason=type(error).__name__)

    # The read before the write mostly finds nothing to do: on SQLite a write waits for all others, a read for
    # none.
    async def _succeed(self, place: str, owner: str) -> None:
        shard = shard_of(place)
        if await self._books.run(_SELECT, shard, place, 0.0):
            await self._books.run(_SUCCEED, shard, place, owner)

    async def _fail(self, place: str, owner: str, now: float) -> None:
        shard = shard_of(place)
        await self._books.run(_FAIL, shard, place, owner, now, now - EXPIRES_AFTER)
        [(rows,)] = await self._books.run("SELECT count(*) FROM screenshots_host WHERE shard = $1", shard)
        if rows > ROWS_PER_SHARD:
            await self._books.run(_TRIM, shard)

    async def failing(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return the places with failures and their customers, most failures first."""
        rows = await self._books.run(
            "SELECT place, owner, failures, at FROM screenshots_host WHERE at > $1"
            " ORDER BY failures DESC, place, owner LIMIT $2",
            self._now() - EXPIRES_AFTER,
            limit,
        )
        return [{"place": place, "owner": owner, "failures": int(number)} for place, owner, number, _ in rows]

    async def expire(self) -> None:
        """Delete the expired rows."""
        await self._books.run("DELETE FROM screenshots_host WHERE at <= $1", self._now() - EXPIRES_AFTER)

    async def _wait(self, place: str, owner: str, now: float) -> float:
        rows = await self._books.run(_SELECT, shard_of(place), place, now - EXPIRES_AFTER)
        failing = [Failing(name, int(failures), at) for name, failures, at in rows]
        own = next((one for one in failing if one.owner == owner), None)
        if own is None or not is_held(own, failing):
            return 0.0
        if now < own.next_at:
            return own.next_at - now
        won = await self._books.run(_START_TRIAL, shard_of(place), place, owner, own.at, now)
        return 0.0 if won else own._replace(at=now).next_at - now

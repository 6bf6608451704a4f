"""Low-water marks of the outbox: the place from which a relay needs to read messages.

A transaction that stays open keeps VACUUM from removing what relayed messages leave behind. A relay that began at the lowest
number would walk over all of it, batch after batch. A mark is a snapshot of the server and, for each line of the outbox, the
lowest number that it had in that snapshot. A message that entered a line later, or became visible later, is not in the
snapshot: the server finds it by its transaction. So nothing is missed, and the order of a key holds (ADR 0025).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from holdfast.jobs.machine import Clock
from holdfast.stores.postgres.enqueue_plan import SQL

#: A mark serves this many takes: what they leave behind is walked over until the next mark.
TAKES = 10
#: A mark is made from the one before for this many seconds; then it is made from nothing, in case a pooler has led us to
#: another server meanwhile. Making it from nothing walks over everything: that is repeated after this many times its own
#: duration at the earliest.
AFRESH, PATIENCE = 60.0, 20


class Mark(NamedTuple):
    """Parameters of the statements. All None: read everything."""

    seen: str | None = None
    lowest: list[int] | None = None
    due: datetime | None = None


NO_MARK = Mark()


@dataclass
class _Route:
    """The mark of topics that are taken together."""

    afresh_at: float = 0.0
    takes: int = 0
    newest: int = 0  #: the highest number taken so far
    mark: Mark = NO_MARK


class OutboxMarks:
    """The marks of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._routes: dict[frozenset[str], _Route] = {}

    def forget(self) -> None:
        """Drop all marks: the server may be another one now."""
        self._routes.clear()

    def of(self, topics: Iterable[str]) -> Mark:
        """Return a mark that covers these topics; any that does is right."""
        asked = frozenset(topics)
        return next((one.mark for known, one in self._routes.items() if asked <= known), NO_MARK)

    async def before_take(self, connection: asyncpg.Connection[Any], topics: Collection[str]) -> Mark:
        """Return the mark with which to take these topics. It is renewed every few takes."""
        route = self._routes.setdefault(frozenset(topics), _Route())
        if route.takes <= 0:
            await self._renew(connection, list(topics), route)
        route.takes -= 1
        return route.mark

    def took(self, topics: Collection[str], numbers: Iterable[int]) -> None:
        """Remember the highest number taken."""
        route = self._routes.get(frozenset(topics))
        if route is not None:
            route.newest = max(route.newest, *numbers, 0)

    async def _renew(self, connection: asyncpg.Connection[Any], topics: list[str], route: _Route) -> None:
        began = self._clock.monotonic()
        is_afresh = began >= route.afresh_at
        before = NO_MARK if is_afresh else route.mark
        [row] = await connection.fetch(SQL["outbox_mark"], topics, route.newest, *before)
        route.mark, route.takes = Mark(*row), TAKES
        if is_afresh:
            now = self._clock.monotonic()
            route.afresh_at = now + max(AFRESH, PATIENCE * (now - began))

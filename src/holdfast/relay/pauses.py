"""Whether somebody has paused the duty `relay` (E27): looked up once a second at most, for all routes."""

from __future__ import annotations

from holdfast.domain.lanes import Scope, ScopeKind
from holdfast.engine.lane_store import LaneStore
from holdfast.engine.ports import Clock
from holdfast.errors import StoreError
from holdfast.logs import Log

log = Log("holdfast.relay")

#: How long an answer is good for.
LOOK_EVERY = 1.0
_RELAY = Scope(ScopeKind.MAINTENANCE, "relay")


class Pauses:
    def __init__(self, store: LaneStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._due, self._paused = 0.0, False

    async def paused(self) -> bool:
        """As far as is known: while the store is away, as it was."""
        now = self._clock.monotonic()
        if now < self._due:
            return self._paused
        self._due = now + LOOK_EVERY
        try:
            paused = any(held.scope == _RELAY for held in await self._store.holds())
        except StoreError:
            return self._paused
        if paused != self._paused:
            log.info("relay.paused" if paused else "relay.resumed")
        self._paused = paused
        return paused

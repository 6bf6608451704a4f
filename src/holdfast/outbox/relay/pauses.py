"""The pause of the maintenance task `relay` (E27), read at most once a second for all routes."""

from __future__ import annotations

from holdfast.engine.tables.holds import holds_in_force
from holdfast.engine.tables.sql import Transacts
from holdfast.errors import StoreError
from holdfast.jobs.lanes import Scope, ScopeKind
from holdfast.jobs.machine import Clock
from holdfast.logging import Log

log = Log("holdfast.relay")

#: How long a reading is valid, in seconds.
READ_EVERY = 1.0
_RELAY = Scope(ScopeKind.MAINTENANCE, "relay")


class Pauses:
    """Tells routes whether the relay is paused."""

    def __init__(self, store: Transacts, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._due, self._paused = 0.0, False

    async def paused(self) -> bool:
        """Return whether the relay is paused.

        While the store is unavailable this is the last known answer.
        """
        now = self._clock.monotonic()
        if now < self._due:
            return self._paused
        self._due = now + READ_EVERY
        try:
            paused = any(held.scope == _RELAY for held in await holds_in_force(self._store))
        except StoreError:
            return self._paused
        if paused != self._paused:
            log.info("relay.paused" if paused else "relay.resumed")
        self._paused = paused
        return paused

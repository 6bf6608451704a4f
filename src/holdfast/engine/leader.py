"""Of all processes that could do a duty, one does: it writes down until when, and renews that while it works."""

from __future__ import annotations

import math

from holdfast.engine.ports import Clock, Store

RENEW_EVERY = 1.0


class Leader:
    """The lead in one duty. *name* is the bookmark that holds its end in milliseconds, *seconds* how long it lasts unless
    it is renewed. Two processes may believe for a moment that they lead, so the duty must be safe to do twice."""

    def __init__(self, store: Store, clock: Clock, name: str, seconds: float) -> None:
        self._store, self._clock, self._name, self._seconds = store, clock, name, seconds
        self._until: int | None = None  #: what this process has written
        self._look_at = -math.inf

    async def is_ours(self) -> bool:
        """Return whether this process leads; take or renew the lead where it is time for that."""
        if self._clock.monotonic() < self._look_at:
            return self._until is not None
        self._look_at = self._clock.monotonic() + RENEW_EVERY
        before = await self._store.bookmark(self._name)
        now = int((await self._store.now()).timestamp() * 1000)
        if before is not None and before != self._until and now < before:
            self._until = None
            return False
        until = now + int(self._seconds * 1000)
        leads = await self._store.move_bookmark(self._name, before=before, to=until)
        self._until = until if leads else None
        return leads

"""Let one of many processes do a maintenance task: it stores until when it leads, and renews that while it runs."""

from __future__ import annotations

import math

from holdfast.engine.ports import Store
from holdfast.engine.tables import bookmarks
from holdfast.jobs.machine import Clock

RENEW_EVERY = 1.0


class Leader:
    """The lead in one maintenance task.

    Two processes may believe for a moment that they lead, so the task must be safe to run twice.

    Args:
        store: Holds the bookmark.
        clock: When to renew.
        name: The bookmark that holds the end of the lead, in milliseconds.
        seconds: How long the lead lasts unless it is renewed.
    """

    def __init__(self, store: Store, clock: Clock, name: str, seconds: float) -> None:
        self._store, self._clock, self._name, self._seconds = store, clock, name, seconds
        self._until: int | None = None  #: the end that this process stored
        self._look_at = -math.inf

    async def is_ours(self) -> bool:
        """Return whether this process leads. Takes or renews the lead when it is due."""
        if self._clock.monotonic() < self._look_at:
            return self._until is not None
        self._look_at = self._clock.monotonic() + RENEW_EVERY
        before = await bookmarks.get(self._store, self._name)
        now = int((await self._store.now()).timestamp() * 1000)
        if before is not None and before != self._until and now < before:
            self._until = None
            return False
        until = now + int(self._seconds * 1000)
        leads = await bookmarks.move(self._store, self._name, before=before, to=until)
        self._until = until if leads else None
        return leads

"""Find out whether the converter's queue is held, by the gateway's open breaker or by a pause."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from systems.converter.tasks import QUEUE, Converter

BANNER = "Converter busy — jobs will resume automatically."
#: Every open page asks after each change. The answer is cached for this long.
_CACHED_FOR_SEC = 0.5


class Busy:
    """Reports whether the queue is held, with a short cache."""

    def __init__(self, converter: Converter) -> None:
        self._app = converter.app
        self._breaker_holds = (
            converter.settings.circuit_mode == "hold"
        )  # otherwise jobs fail, and none resumes
        self._lock = asyncio.Lock()
        self._until, self._held = 0.0, False

    async def held(self) -> bool:
        """Return whether the queue is held."""
        async with self._lock:
            if time.monotonic() >= self._until:
                self._held = await self._read()
                self._until = time.monotonic() + _CACHED_FOR_SEC
            return self._held

    async def _read(self) -> bool:
        return any(self._holds(lane) for lane in await self._app.queues.lanes() if lane.queue == QUEUE)

    def _holds(self, lane: Any) -> bool:
        # A half-open breaker lets one trial through and holds the rest, so it only matters if jobs wait.
        if lane.held is not None:
            return True
        return self._breaker_holds and (
            lane.breaker == "open" or (lane.breaker == "half_open" and lane.waiting > 0)
        )

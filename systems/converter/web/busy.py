"""Whether the converter is held now: its gateway's breaker is open, or somebody has paused it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from systems.converter.tasks import QUEUE, Converter

BANNER = "Converter busy — jobs will resume automatically."
#: All pages ask every two seconds; the store is asked this often.
_BELIEVED_FOR_SEC = 0.5


class Busy:
    def __init__(self, converter: Converter) -> None:
        self._app = converter.app
        self._breaker_holds = converter.settings.circuit_mode == "hold"  # else jobs fail, and nothing resumes
        self._lock = asyncio.Lock()
        self._until, self._held = 0.0, False

    async def held(self) -> bool:
        async with self._lock:
            if time.monotonic() >= self._until:
                self._held = await self._look()
                self._until = time.monotonic() + _BELIEVED_FOR_SEC
            return self._held

    async def _look(self) -> bool:
        return any(self._holds(lane) for lane in await self._app.lanes() if lane.queue == QUEUE)

    def _holds(self, lane: Any) -> bool:
        """Half open, a breaker holds back whom it does not try; without anybody there, nobody waits for it."""
        if lane.held is not None:
            return True
        return self._breaker_holds and (
            lane.breaker == "open" or (lane.breaker == "half_open" and lane.waiting > 0)
        )

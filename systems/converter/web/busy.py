"""Whether the converter is held now: its gateway's breaker is not closed, or somebody has paused it."""

from __future__ import annotations

import asyncio
import time

from holdfast import Holdfast
from systems.converter.tasks import GATEWAY, QUEUE

BANNER = "Converter busy — jobs will resume automatically."
#: All pages ask every two seconds; the store is asked this often.
_BELIEVED_FOR_SEC = 0.5


class Busy:
    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._until, self._held = 0.0, False

    async def held(self) -> bool:
        async with self._lock:
            if time.monotonic() >= self._until:
                self._held = await self._look()
                self._until = time.monotonic() + _BELIEVED_FOR_SEC
            return self._held

    async def _look(self) -> bool:
        lanes = [lane for lane in await self._app.lanes() if lane.queue == QUEUE]
        return any(lane.held is not None or (lane.breaker or "closed") != "closed" for lane in lanes) or any(
            seen.dependency.name == GATEWAY and seen.breaker.state != "closed"
            for seen in await self._app.breakers()
        )

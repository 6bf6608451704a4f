"""Time, randomness and unique keys for a client, which runs in programs without Holdfast's wiring."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import Protocol


class Environment(Protocol):
    """The time and randomness that a client uses. Tests replace it."""

    def monotonic(self) -> float: ...

    def random(self) -> float: ...

    def new_key(self) -> str:
        """Return a key that no other request has."""

    def sleep(self, seconds: float) -> None: ...

    async def sleep_async(self, seconds: float) -> None: ...


class RealEnvironment:
    """The system's clock and randomness."""

    def monotonic(self) -> float:
        return time.monotonic()

    def random(self) -> float:
        return random.random()

    def new_key(self) -> str:
        return str(uuid.uuid4())

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

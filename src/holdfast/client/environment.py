"""Time, chance and names for a client. It lives in other people's programs, which have no wiring of ours."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import Protocol


class Environment(Protocol):
    """What a client asks of the world around it; tests give it another."""

    def monotonic(self) -> float: ...

    def random(self) -> float: ...

    def new_key(self) -> str:
        """A name that no other request has."""

    def sleep(self, seconds: float) -> None: ...

    async def sleep_async(self, seconds: float) -> None: ...


class RealEnvironment:
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

"""A switch that lets a service fail on purpose, and what its layer of faults needs: whichever faults the service knows."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Generic, Protocol, TypeVar

from starlette.types import Receive, Send


class AnyFault(Protocol):
    @property
    def percent(self) -> float:
        """With how many of the requests."""

    @property
    def seconds(self) -> float | None:
        """For how long; None: until it is switched off."""


F = TypeVar("F", bound=AnyFault)


class Switch(Generic[F]):
    """The fault that is on now, if any, and how many requests it has seen."""

    def __init__(self) -> None:
        self._fault: F | None = None
        self._until: float | None = None
        self._left: int | None = None
        self._seen: dict[str, int] = {}
        self._off = asyncio.Event()
        self.struck = 0  #: requests that were made to fail since the service began

    def set(self, fault: F | None) -> None:
        self._fault = fault
        self._left = getattr(fault, "times", None)  # how many requests it breaks before it is off
        seconds = None if fault is None else fault.seconds
        self._until = None if seconds is None else time.monotonic() + seconds
        self._seen.clear()
        self._off.set()  # releases requests that hang because of the last fault
        self._off = asyncio.Event()

    def current(self) -> F | None:
        if self._until is not None and time.monotonic() >= self._until:
            self.set(None)
        return self._fault

    def take(self, kind: str = "") -> F | None:
        """The fault for this request. Counted out by its *kind*, not drawn: of 10 requests at 30 % it is 3, and the same 3
        each time."""
        fault = self.current()
        if fault is None or self._left == 0:
            return None
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        if int(seen * fault.percent / 100) == int((seen - 1) * fault.percent / 100):
            return None
        self._left = None if self._left is None else self._left - 1
        self.struck += 1
        return fault

    async def wait_until_off(self) -> None:
        off, until = self._off, self._until
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(until - time.monotonic(), 0)):
                await off.wait()


async def drain(receive: Receive) -> None:
    """Read the request to its end, as a service does that fails late; the answer is then sure to arrive."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


async def answer(send: Send, status: int, body: bytes, kind: bytes, more: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

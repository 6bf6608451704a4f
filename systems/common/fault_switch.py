"""A switch for injected faults, and the helpers that a service's fault layer needs.

Each service defines its own faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Generic, Protocol, TypeVar

from starlette.types import Receive, Send


class AnyFault(Protocol):
    """The fields that the fault of any service has."""

    @property
    def percent(self) -> float:
        """The share of requests that fail."""

    @property
    def seconds(self) -> float | None:
        """Return how long the fault lasts. None means until it is switched off."""


F = TypeVar("F", bound=AnyFault)


class Switch(Generic[F]):
    """The fault that is on now, if any, and which requests it applies to."""

    def __init__(self) -> None:
        self._fault: F | None = None
        self._until: float | None = None
        self._left: int | None = None
        self._seen: dict[str, int] = {}
        self._off = asyncio.Event()
        self.struck = 0  #: requests that were made to fail since the service started

    def set(self, fault: F | None) -> None:
        self._fault = fault
        self._left = getattr(fault, "times", None)  # requests it breaks before it is off
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
        """Return the fault for this request, or None if the request is to succeed.

        Requests are counted for each *kind*, not drawn at random: at 30 % it is always the same 3 of 10.
        """
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
        """Wait until the fault is switched off, replaced or over."""
        off, until = self._off, self._until
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else max(until - time.monotonic(), 0)):
                await off.wait()


async def drain(receive: Receive) -> None:
    """Read the request to its end, as a service that fails late does.

    The response then arrives for certain.
    """
    while True:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


async def answer(
    send: Send, status: int, body: bytes, content_type: bytes, more: list[tuple[bytes, bytes]]
) -> None:
    """Send a whole response. *more* are further headers."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

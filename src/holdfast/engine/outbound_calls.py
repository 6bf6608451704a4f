"""The port for calls to URLs that users enter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class OutboundResponse(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


class OutboundCalls(Protocol):
    async def check_address(self, url: str) -> None:
        """Raise `TargetNotAllowed` for a URL that must not be called, by its text or by the address it resolves to now."""

    async def call(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str], most: int
    ) -> OutboundResponse:
        """Send one request, and return its response. Redirects are not followed; at most *most* bytes of the body are read.

        Raises:
            TargetNotAllowed: The URL must not be called.
            TimeoutError: No response came in time.
            ConnectionError: The connection failed.
        """

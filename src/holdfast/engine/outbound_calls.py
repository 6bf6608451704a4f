"""The door for calls to URLs that users gave."""

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
        """`TargetNotAllowed` for a URL that must not be called, by its text or by where its name leads now."""

    async def call(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str], most: int
    ) -> OutboundResponse:
        """One request, one answer, redirects not followed, at most *most* bytes of it read.

        `TargetNotAllowed` when it must not be made; `TimeoutError` or `ConnectionError` when it came to nothing.
        """

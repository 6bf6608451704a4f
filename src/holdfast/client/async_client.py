"""`AsyncClient`: the HTTP API for async code, with the same methods as `Client`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx2

from holdfast.client.core import Core, is_stream
from holdfast.client.environment import Environment
from holdfast.client.retries import RequestRetries
from holdfast.client.verbs import Verbs
from holdfast.values.duration import Duration


class AsyncClient(Verbs):
    """A client for the Holdfast API at *url*, for one event loop. Close it, or use `async with`.

    After a lost connection, 429 or 503 a request is sent again, if that is safe, as *retries* says. A request
    that changes something carries an Idempotency-Key, so that it is carried out once however often it is
    sent. Operations without a method here are sent with `await client.send(calls.rotate_key(…))`. The errors
    are those of `holdfast.client.errors`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: Duration = "10s",
        retries: RequestRetries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._core = Core(url, key, timeout, retries, environment)
        self._http = httpx2.AsyncClient(transport=transport, **self._core.options())

    def __repr__(self) -> str:
        return f"<AsyncClient of {self._core.url}>"  # without its key

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _request(self, request: dict[str, Any]) -> httpx2.Response:
        return await self._http.request(**request)

    async def _chunks(self, request: dict[str, Any]) -> AsyncGenerator[bytes]:
        async with self._http.stream(**request) as response:
            if not is_stream(response):
                raise self._core.refusal(response, await response.aread())
            async for chunk in response.aiter_bytes():
                yield chunk

    async def _sleep(self, seconds: float) -> None:
        await self._core.environment.sleep_async(seconds)

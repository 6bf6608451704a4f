"""Async verbs for sync code: one event loop in one thread, with an engine and a store of its own."""

from __future__ import annotations

import asyncio
import atexit
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from holdfast.engine.engine import Engine
from holdfast.engine.ports import Threads
from holdfast.verbs import Verbs

T = TypeVar("T")


class Portal(Verbs):
    def __init__(self, make_engine: Callable[[], Awaitable[Engine]], threads: Threads) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._opening: asyncio.Lock | None = None
        self._loop = asyncio.new_event_loop()
        self._join = threads.start("holdfast-portal", self._run)
        atexit.register(self.close)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def engine(self) -> Engine:
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._engine is None:
                self._engine = await self._make_engine()
        return self._engine

    def call(self, verb: Callable[[Engine], Awaitable[T]]) -> T:
        """Do something with the engine in the portal's loop and wait for the answer."""

        async def run() -> T:
            return await verb(await self.engine())

        return self.wait_for(run())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._loop.is_closed():
            return
        if self._engine is not None:
            if self._engine.broker is not None:
                self.wait_for(self._engine.broker.close())
            self.wait_for(self._engine.store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._join(5)
        self._loop.close()


class SyncVerbs:
    """The verbs as plain calls: `app.sync.retry(id)` is `await app.retry(id)`."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_") or not inspect.iscoroutinefunction(getattr(Verbs, verb, None)):
            raise AttributeError(f"no verb {verb}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._portal.wait_for(getattr(self._portal, verb)(*args, **kwargs))

        return call

"""Async verbs for sync code: one event loop in one thread, with a store of its own."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.engine.ports import Threads

T = TypeVar("T")


class Portal:
    def __init__(self, app: Holdfast, threads: Threads) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._join = threads.start("holdfast-portal", self._run)
        atexit.register(self.close)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, verb: Callable[[Holdfast], Coroutine[Any, Any, T]]) -> T:
        """Run a verb of the app in the portal's loop and wait for its answer."""
        return asyncio.run_coroutine_threadsafe(verb(self._app), self._loop).result()

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._app.close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._join(5)
        self._loop.close()

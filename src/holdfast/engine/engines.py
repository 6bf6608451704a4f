"""The engines of one app: one for each event loop that uses it, and one for callers that have no loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.engine.engine import Engine
from holdfast.engine.ports import EnqueuesDirectly, Store

Loop = asyncio.AbstractEventLoop


class Engines:
    """*opened* makes an engine in the running loop, *closed* one that needs none. *owned*: their stores are ours to close."""

    def __init__(
        self, opened: Callable[[], Awaitable[Engine]], closed: Callable[[], Engine], *, owned: bool
    ) -> None:
        self._opened, self._closed, self._owned = opened, closed, owned
        self._by_loop: dict[Loop | None, Engine] = {}
        self._openings: dict[Loop, asyncio.Lock] = {}
        self._direct: EnqueuesDirectly | None = None
        # Of stores alone: a reference to an engine keeps its tasks alive, and with them the app.
        self._stores: dict[Loop | None, Store] = {}
        self._end = weakref.finalize(self, _abandon_all, self._stores)

    def leave(self) -> None:
        """Never close these engines: this process was forked, and they belong to its parent."""
        self._end.detach()

    async def here(self) -> Engine:
        """The engine of the running loop, opened if need be. Those of loops that are gone are closed on the way."""
        loop = asyncio.get_running_loop()
        if loop in self._by_loop:
            return self._by_loop[loop]
        self._sweep()
        async with self._openings.setdefault(loop, asyncio.Lock()):
            if loop not in self._by_loop:
                self._keep(loop, await self._opened())
        return self._by_loop[loop]

    def anywhere(self) -> Engine:
        """Any engine, for what needs no loop."""
        if not self._by_loop:
            self._keep(None, self._closed())
        return next(iter(self._by_loop.values()))

    def direct(self) -> EnqueuesDirectly | None:
        """A store that can be enqueued to from any thread, if these are of that kind."""
        if self._direct is None:
            store = self.anywhere().store
            self._direct = store if isinstance(store, EnqueuesDirectly) else None
        return self._direct

    async def close(self) -> None:
        """Close the engine of the running loop, and those that no loop uses."""
        self.close_idle()
        loop = asyncio.get_running_loop()
        engine = self._by_loop.pop(loop, None)
        self._openings.pop(loop, None)
        store = self._stores.pop(loop, None)
        if engine is not None and engine.caller is not None:
            await engine.caller.close()
        if engine is not None and engine.broker is not None:
            await engine.broker.close()
        if store is not None:
            await store.close()

    def close_idle(self) -> None:
        """Close the engine of no loop, and those of loops that are gone. No thread may be enqueueing."""
        self._direct = None
        self._sweep()
        self._drop(None)

    def _keep(self, loop: Loop | None, engine: Engine) -> None:
        self._by_loop[loop] = engine
        if self._owned:
            self._stores[loop] = engine.store

    def _sweep(self) -> None:
        """Close what was opened in loops that are gone, but for a store that threads may be enqueueing to."""
        used: object = self._direct
        for loop in [loop for loop in self._by_loop if loop is not None and loop.is_closed()]:
            if self._by_loop[loop].store is not used:
                self._drop(loop)

    def _drop(self, loop: Loop | None) -> None:
        self._by_loop.pop(loop, None)
        if loop is not None:
            self._openings.pop(loop, None)
        store = self._stores.pop(loop, None)
        if store is not None:
            store.abandon()


def _abandon_all(stores: dict[Loop | None, Store]) -> None:
    """At the end of the app, or of the process: there is nobody left to close them."""
    for loop, store in stores.items():
        if loop is None or loop.is_closed():
            with suppress(Exception):  # and nobody to tell
                store.abandon()

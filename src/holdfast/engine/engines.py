"""The engines of one app: one for each event loop that uses it, and one for callers that have no loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.engine.engine import Engine
from holdfast.engine.ports import EnqueuesDirectly, Store

Loop = asyncio.AbstractEventLoop


class Engines:
    """Opens and closes engines.

    Args:
        opened: Makes an engine in the running loop.
        closed: Makes an engine that needs no loop.
        owned: Whether the stores of these engines are closed here.
    """

    def __init__(
        self, opened: Callable[[], Awaitable[Engine]], closed: Callable[[], Engine], *, owned: bool
    ) -> None:
        self._opened, self._closed, self._owned = opened, closed, owned
        self.by_loop: dict[Loop | None, Engine] = {}  #: the open engines, each by the loop that uses it
        self._openings: dict[Loop, asyncio.Lock] = {}
        self._making = threading.Lock()
        self._direct: EnqueuesDirectly | None = None
        # Only stores: a reference to an engine would keep its tasks alive, and with them the app.
        self._stores: dict[Loop | None, Store] = {}
        self._end = weakref.finalize(self, _abandon_all, self._stores)

    def leave(self) -> None:
        """Never close these engines: this process was forked, and they belong to its parent."""
        self._end.detach()

    async def open(self) -> Engine:
        """Open an engine for the running loop, unless it has one by now, and return it. Engines of closed loops are closed."""
        loop = asyncio.get_running_loop()
        self._sweep()
        async with self._openings.setdefault(loop, asyncio.Lock()):
            if loop not in self.by_loop:
                self._keep(loop, await self._opened())
        return self.by_loop[loop]

    def anywhere(self) -> Engine:
        """Return any engine, for calls that need no loop."""
        if not self.by_loop:
            with self._making:  # threads that come first at the same time share one
                if not self.by_loop:
                    self._keep(None, self._closed())
        return next(iter(self.by_loop.values()))

    def direct(self) -> EnqueuesDirectly | None:
        """Return a store that any thread may enqueue to; None when the stores of this app are not of that kind."""
        if self._direct is None:
            store = self.anywhere().store
            self._direct = store if isinstance(store, EnqueuesDirectly) else None
        return self._direct

    async def close(self) -> None:
        """Close the engine of the running loop, and those that no loop uses."""
        self.close_idle()
        loop = asyncio.get_running_loop()
        engine = self.by_loop.pop(loop, None)
        self._openings.pop(loop, None)
        store = self._stores.pop(loop, None)
        if engine is not None and engine.caller is not None:
            await engine.caller.close()
        if engine is not None and engine.broker is not None:
            await engine.broker.close()
        if store is not None:
            await store.close()

    def close_idle(self) -> None:
        """Close the engine of no loop, and those of closed loops. No thread may be enqueueing."""
        self._direct = None
        self._sweep()
        self._drop(None)

    def _keep(self, loop: Loop | None, engine: Engine) -> None:
        self.by_loop[loop] = engine
        if self._owned:
            self._stores[loop] = engine.store

    def _sweep(self) -> None:
        """Close the engines of closed loops, except one whose store threads may be enqueueing to."""
        used: object = self._direct
        for loop in [loop for loop in self.by_loop if loop is not None and loop.is_closed()]:
            if self.by_loop[loop].store is not used:
                self._drop(loop)

    def _drop(self, loop: Loop | None) -> None:
        self.by_loop.pop(loop, None)
        if loop is not None:
            self._openings.pop(loop, None)
        store = self._stores.pop(loop, None)
        if store is not None:
            store.abandon()


def _abandon_all(stores: dict[Loop | None, Store]) -> None:
    """Close the stores at the end of the app or of the process, when no loop is left to do it."""
    for loop, store in stores.items():
        if loop is None or loop.is_closed():
            with suppress(Exception):  # no caller is left to raise to
                store.abandon()

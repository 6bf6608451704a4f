"""An event loop in a thread of its own, with an engine and a store, that runs async calls for sync code."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

from holdfast.engine.breakers import GuardSource
from holdfast.engine.engine import Engine
from holdfast.errors import UsageError
from holdfast.jobs.machine import Threads
from holdfast.outbox.verbs import Publisher

T = TypeVar("T")

#: How long closing a portal may take, in seconds.
_CLOSE_WITHIN = 5.0


class Portal:
    """Ends when it is closed, when its app is garbage, and with the process."""

    def __init__(self, make_engine: Callable[[], Awaitable[Engine]], threads: Threads) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._opening: asyncio.Lock | None = None
        self._loop = asyncio.new_event_loop()
        self._opened: list[Callable[[], Awaitable[None]]] = []  #: how to close what was opened
        # The thread and the finalizer know the loop and what to close. A reference to a portal or an engine would keep the app.
        join = threads.start("holdfast-portal", partial(_run, self._loop))
        self.close = weakref.finalize(self, _end, self._loop, join, self._opened)

    @property
    def is_open(self) -> bool:
        return self.close.alive

    @property
    def runs_here(self) -> bool:
        """Return whether the caller runs in the portal's loop."""
        return asyncio._get_running_loop() is self._loop

    def leave(self) -> None:
        """Never close this portal: the process was forked, and the thread stayed in its parent."""
        self.close.detach()

    async def engine(self) -> Engine:
        """Return the engine of the portal's loop. It is opened if it is not open yet."""
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._engine is None:
                engine = self._engine = await self._make_engine()
                self._opened.append(partial(_close_caller, weakref.ref(engine)))
                self._opened += [] if engine.broker is None else [engine.broker.close]
                self._opened.append(engine.store.close)
        return self._engine

    def call(self, verb: Callable[[Engine], Awaitable[T]]) -> T:
        """Run *verb* on the engine in the portal's loop, and return its answer."""

        async def run() -> T:
            return await verb(await self.engine())

        return self.wait_for(run())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* in the portal's loop, and return its answer. Raises `UsageError` once the portal is closed."""
        if not self.is_open:
            work.close()
            raise UsageError(
                "this was closed, or belongs to the process that forked this one; get app.sync again"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(
    loop: asyncio.AbstractEventLoop,
    join: Callable[[float | None], None],
    opened: list[Callable[[], Awaitable[None]]],
) -> None:
    """Close what was opened, then end the loop and its thread."""

    async def close() -> None:
        try:
            for one in opened:
                await one()
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(close(), loop)
    if asyncio._get_running_loop() is not loop:  # the garbage collector may call this in that very thread
        join(_CLOSE_WITHIN)


async def _close_caller(found: weakref.ref[Engine]) -> None:
    """End the heartbeat of calls to dependencies. While it runs it keeps the engine; later the engine may be gone."""
    engine = found()
    if engine is not None and engine.caller is not None:
        await engine.caller.close()


class Run(Protocol):
    """Runs async work from sync code, and returns its answer."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class SyncSource(Publisher, GuardSource[Any], Protocol):
    """What `app.sync` needs of an app."""

    @property
    def portal(self) -> Portal: ...

    def run_sync(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run *work* in the portal's loop, and return its answer."""

    def close_sync(self) -> None: ...


class InPortal:
    """The source of namespaces whose verbs run in the portal's loop: its engine, and all else from the app."""

    def __init__(self, app: SyncSource) -> None:
        self._app = app
        self.current_trace, self.publish_now = app.current_trace, app.publish_now
        self.closed_engine, self.direct_store = app.closed_engine, app.direct_store
        self.make_relay, self.guard = app.make_relay, app.guard

    async def engine(self) -> Engine:
        return await self._app.portal.engine()

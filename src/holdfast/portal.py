"""Async verbs for sync code: one event loop in one thread, with an engine and a store of its own."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from holdfast.domain.suggest import suggest
from holdfast.engine.engine import Engine
from holdfast.engine.ports import Threads
from holdfast.errors import UsageError
from holdfast.verbs import Verbs

T = TypeVar("T")

#: How long the end of a portal may take, in seconds.
PATIENCE = 5.0


class Portal(Verbs):
    """Ends when it is closed, when nobody has its app any more, and with the process."""

    def __init__(self, make_engine: Callable[[], Awaitable[Engine]], threads: Threads) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._opening: asyncio.Lock | None = None
        self._loop = asyncio.new_event_loop()
        self._opened: list[Callable[[], Awaitable[None]]] = []  #: how to close what was opened
        # The thread and the end know the loop and what to close. A reference to a portal or an engine keeps the app alive.
        join = threads.start("holdfast-portal", partial(_run, self._loop))
        self.close = weakref.finalize(self, _end, self._loop, join, self._opened)

    @property
    def is_open(self) -> bool:
        return self.close.alive

    def leave(self) -> None:
        """Never close it: this process was forked, and the thread stayed in its parent."""
        self.close.detach()

    async def engine(self) -> Engine:
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._engine is None:
                engine = self._engine = await self._make_engine()
                self._opened.append(partial(_close_caller, weakref.ref(engine)))
                self._opened += [] if engine.broker is None else [engine.broker.close]
                self._opened.append(engine.store.close)
        return self._engine

    def call(self, verb: Callable[[Engine], Awaitable[T]]) -> T:
        """Do something with the engine in the portal's loop and wait for the answer."""

        async def run() -> T:
            return await verb(await self.engine())

        return self.wait_for(run())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* in the portal's loop and return its answer. Raises `UsageError` once the portal is closed."""
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
    """Close what was opened, then the loop ends and its thread with it. The garbage collector may call this in that thread,
    which cannot wait for itself."""

    async def close() -> None:
        try:
            for one in opened:
                await one()
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(close(), loop)
    if asyncio._get_running_loop() is not loop:
        join(PATIENCE)


async def _close_caller(found: weakref.ref[Engine]) -> None:
    """End the beat of calls to dependencies. While it runs it keeps the engine; once it has ended the engine may be gone."""
    engine = found()
    if engine is not None and engine.caller is not None:
        await engine.caller.close()


class SyncVerbs:
    """The verbs as plain calls: `app.sync.retry(id)` is `await app.retry(id)`."""

    def __init__(self, portal: Callable[[], Portal], close: Callable[[], None]) -> None:
        self._portal, self._close = portal, close

    def close(self) -> None:
        """End the thread and the connections that plain calls have opened, once no other thread uses them. The next call
        opens them anew; without this they end with the app or the process."""
        self._close()

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_") or not inspect.iscoroutinefunction(getattr(Verbs, verb, None)):
            verbs = [name for name in dir(Verbs) if inspect.iscoroutinefunction(getattr(Verbs, name))]
            way = "those of an app can be called here" if hasattr(Verbs, verb) else suggest(verb[:60], verbs)
            raise AttributeError(f"app.sync has no verb {verb[:60]}; {way}")

        def call(*args: Any, **kwargs: Any) -> Any:
            portal = self._portal()
            return portal.wait_for(getattr(portal, verb)(*args, **kwargs))

        return call

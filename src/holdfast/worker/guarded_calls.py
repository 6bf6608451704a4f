"""Guarded calls of dependencies from processes that run no worker: a web app, a script, a Celery task.

Votes, trials and states are in the store, shared with workers that call the same dependency.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol

from holdfast.domain.classify import classify
from holdfast.domain.guard import CALLER_SECONDS, CallPermit
from holdfast.domain.job import Session
from holdfast.domain.lanes import Dependency
from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.worker.dependencies import BEAT_EVERY, Dependencies

log = Log("holdfast.calls")

_SESSION_TTL = timedelta(seconds=10)
#: Seconds that a call waits for a store that does not answer, to be opened and to be asked; then it goes on without.
OPEN_WITHIN, LOOK_WITHIN = 5.0, 2.0


class GuardedCaller:
    """The guards of one engine, and a beat that exchanges what they know with the store while calls are made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dependencies = Dependencies(engine, lambda: None)
        self._session: Session | None = None
        self._beat: asyncio.Task[None] | None = None
        self._last_use = 0.0
        self._under_way = 0

    async def enter(self, dependency: Dependency) -> CallPermit:
        """Begin a call; raise `DependencyHeld` when the breaker is open. A store that is away stops no call."""
        self._last_use = self._engine.clock.monotonic()
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                await self._dependencies.serve([dependency])
                if self._beat is None or self._beat.done():
                    await self._dependencies.look()
        except (StoreError, TimeoutError) as error:
            log.warning("dependency.sync_retrying", dependency=dependency.label, reason=str(error))
        if self._beat is None or self._beat.done():
            self._beat = asyncio.create_task(self._run(), name="dependencies")
        call = await self._dependencies.enter_call(dependency, None)
        self._under_way += 1
        return call

    async def leave(self, call: CallPermit, error: BaseException | None) -> None:
        """End a call with what its block raised, if anything."""
        self._under_way -= 1
        self._last_use = self._engine.clock.monotonic()
        if error is not None and not isinstance(error, Exception):  # cancelled, or the process ends
            await self._dependencies.abandon(call)
            return
        failure = None if error is None else classify(error, now=self._engine.clock.now())
        await self._dependencies.leave(call, failure)

    async def close(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)

    async def _run(self) -> None:
        """Exchange votes and states about once a second, until no call was made for a while."""
        clock = self._engine.clock
        while self._under_way or clock.monotonic() - self._last_use < CALLER_SECONDS:
            try:
                await self._dependencies.tend(await self._reporter())
            except StoreError as error:
                log.info("dependency.sync_retrying", reason=str(error))
            except Exception:  # a bug here must not end the exchange
                log.exception("dependency.sync_failed")
            await clock.sleep(BEAT_EVERY * (0.8 + 0.4 * self._engine.rng.random()))

    async def _reporter(self) -> Session:
        """The number under which this process reports. It is closed at once: no job is ever claimed under it."""
        if self._session is None:
            store = self._engine.store
            session = await store.open_session(self._engine.ids.worker_name(), _SESSION_TTL)
            await store.close_session(session)
            self._session = session
        return self._session


def caller_of(engine: Engine) -> GuardedCaller:
    """The one caller of this engine, made when it is first needed."""
    if not isinstance(engine.caller, GuardedCaller):
        engine.caller = GuardedCaller(engine)
    return engine.caller


class _Portal(Protocol):
    async def engine(self) -> Engine: ...
    def wait_for(self, work: Any) -> Any: ...


class GuardedCall:
    """A call of a dependency outside of a worker: `async with app.dependency_call("bank"): …`, or a plain `with`.

    What the block raises is judged as that dependency's doing. While its breaker is open the block is not entered:
    `DependencyHeld` is raised, and its `after` says for how long.
    """

    def __init__(
        self,
        dependency: Dependency,
        engine: Callable[[], Awaitable[Engine]],
        portal: Callable[[], _Portal],
    ) -> None:
        self.dependency = dependency
        self._engine, self._find_portal = engine, portal
        self._portal: _Portal | None = None  #: of a plain `with`, while inside
        self._entered: tuple[GuardedCaller, CallPermit] | None = None

    async def __aenter__(self) -> GuardedCall:
        await self._enter(self._engine)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(error)

    def __enter__(self) -> GuardedCall:
        portal = self._find_portal()
        portal.wait_for(self._enter(portal.engine))
        self._portal = portal
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        portal, self._portal = self._portal, None
        if portal is not None:
            portal.wait_for(self._leave(error))

    async def _enter(self, engine: Callable[[], Awaitable[Engine]]) -> None:
        try:
            async with asyncio.timeout(OPEN_WITHIN):
                caller = caller_of(await engine())
        except (StoreError, TimeoutError) as error:  # nothing is known about the dependency: the call decides
            log.warning("dependency.unguarded", dependency=self.dependency.label, reason=str(error))
            return
        self._entered = caller, await caller.enter(self.dependency)

    async def _leave(self, error: BaseException | None) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            caller, call = entered
            with contextlib.suppress(StoreError):  # its loan of a trial runs out by itself
                await caller.leave(call, error)

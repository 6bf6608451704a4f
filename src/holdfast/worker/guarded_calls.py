"""Guarded calls of dependencies from processes that run no worker: a web app, a script, a Celery task.

Votes, trials and breaker states are shared through the store with workers that call the same dependency.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol

from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.jobs.job import Session
from holdfast.jobs.lanes import Dependency
from holdfast.logging import Log
from holdfast.resilience.classify import classify
from holdfast.resilience.guard import CALLER_SECONDS, CallPermit
from holdfast.worker.dependencies import BEAT_EVERY, Dependencies

log = Log("holdfast.calls")

_SESSION_TTL = timedelta(seconds=10)
#: How many seconds a call waits for the store to open, and to answer. Then the call proceeds without it.
OPEN_WITHIN, LOOK_WITHIN = 5.0, 2.0


class GuardedCaller:
    """The guards of one engine, and a task that exchanges states with the store while calls are made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dependencies = Dependencies(engine, lambda: None)
        self._session: Session | None = None
        self._exchange: asyncio.Task[None] | None = None
        self._last_use = 0.0
        self._open_calls = 0

    async def enter(self, dependency: Dependency) -> CallPermit:
        """Begin a call and return its permit. An unavailable store stops no call.

        Raises:
            DependencyHeld: The breaker is open.
        """
        self._last_use = self._engine.clock.monotonic()
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                await self._dependencies.serve([dependency])
                if self._exchange is None or self._exchange.done():
                    await self._dependencies.read_states()
        except (StoreError, TimeoutError) as error:
            log.warning("dependency.sync_retrying", dependency=dependency.label, reason=str(error))
        if self._exchange is None or self._exchange.done():
            self._exchange = asyncio.create_task(self._exchange_states(), name="dependencies")
        call = await self._dependencies.enter_call(dependency, None)
        self._open_calls += 1
        return call

    async def leave(self, call: CallPermit, error: BaseException | None) -> None:
        """End a call. *error* is what its block raised, if anything."""
        self._open_calls -= 1
        self._last_use = self._engine.clock.monotonic()
        if error is not None and not isinstance(error, Exception):  # cancelled, or the process ends
            await self._dependencies.abandon(call)
            return
        failure = None if error is None else classify(error, now=self._engine.clock.now())
        await self._dependencies.leave(call, failure)

    async def close(self) -> None:
        """Stop the background task."""
        if self._exchange is not None:
            self._exchange.cancel()
            await asyncio.gather(self._exchange, return_exceptions=True)

    async def _exchange_states(self) -> None:
        """Exchange votes and states about once a second, until no call was made for `CALLER_SECONDS`."""
        clock = self._engine.clock
        while self._open_calls or clock.monotonic() - self._last_use < CALLER_SECONDS:
            try:
                await self._dependencies.sync(await self._reporting_session())
            except StoreError as error:
                log.info("dependency.sync_retrying", reason=str(error))
            except Exception:  # a bug here must not end the exchange
                log.exception("dependency.sync_failed")
            await clock.sleep(BEAT_EVERY * (0.8 + 0.4 * self._engine.rng.random()))

    async def _reporting_session(self) -> Session:
        """Return the session under which this process reports.

        It is closed at once: no job is claimed under it.
        """
        if self._session is None:
            store = self._engine.store
            session = await store.open_session(self._engine.ids.worker_name(), _SESSION_TTL)
            await store.close_session(session)
            self._session = session
        return self._session


def caller_of(engine: Engine) -> GuardedCaller:
    """Return the one caller of this engine, created at the first call."""
    if not isinstance(engine.caller, GuardedCaller):
        engine.caller = GuardedCaller(engine)
    return engine.caller


class _Portal(Protocol):
    async def engine(self) -> Engine: ...
    def wait_for(self, work: Any) -> Any: ...


class GuardedCall:
    """A call of a dependency outside of a worker: `async with app.breakers.guard("bank"): …`, or `with`.

    An exception of the block counts as a failure of the dependency. While the breaker is open the block is
    not entered.

    Raises:
        DependencyHeld: The breaker is open. Its `after` says for how long.
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
        except (
            StoreError,
            TimeoutError,
        ) as error:  # the state of the breaker is unknown, so the call is made
            log.warning("dependency.unguarded", dependency=self.dependency.label, reason=str(error))
            return
        self._entered = caller, await caller.enter(self.dependency)

    async def _leave(self, error: BaseException | None) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            caller, call = entered
            with contextlib.suppress(StoreError):  # a trial slot expires by itself
                await caller.leave(call, error)

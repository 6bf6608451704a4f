"""What opens the store of an app: an engine for each event loop, one for callers without a loop, and a loop in a thread."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.declarations import Declarations
from holdfast.engine.admission import Admission
from holdfast.engine.dispatcher import Dispatcher, name_of
from holdfast.engine.engine import Engine
from holdfast.engine.engines import Engines
from holdfast.engine.jobs import Jobs
from holdfast.engine.namespace import OpenEngine
from holdfast.engine.observers import Observers
from holdfast.engine.operation import BatchAction
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.override_feed import read_overrides
from holdfast.engine.ports import ArtifactBackend, EnqueuesDirectly, RegistersLanes, Store, Transaction
from holdfast.jobs.job import Enqueued, JobId, JobRow, NewJob
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.machine import Clock, Rng
from holdfast.jobs.retention import Retention
from holdfast.outbox.relay.assembly import make_relay
from holdfast.outbox.relay.relay import Relay
from holdfast.portal import Portal
from holdfast.tasks.main_guard import check_import
from holdfast.tasks.settings import Settings
from holdfast.tasks.task import Task
from holdfast.values.duration import Duration
from holdfast.values.urls import shown
from holdfast.webhooks.replay import replay_batch
from holdfast.wiring import (
    SystemClock,
    SystemIds,
    SystemRng,
    SystemThreads,
    find_secret_keys,
    make_artifacts,
    make_dispatch,
    make_outbound,
    make_store,
    make_transport,
)
from holdfast.worker.guarded_calls import GuardedCall

if TYPE_CHECKING:
    from holdfast.metrics.metrics import Metrics

T = TypeVar("T")

_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
#: What the parents of this process have opened. It stays here, because dropping a connection may end the parent's.
_parents: list[tuple[Engines, Portal | None]] = []


def _leave_to_parent() -> None:
    """Let every app of a forked process begin with nothing open. What is open belongs to the parent."""
    for runtime in list(_runtimes):
        runtime.leave_to_parent()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_leave_to_parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Parts of an app that tests put in; None means the real one."""

    clock: Clock | None = None
    rng: Rng | None = None
    store: Store | None = None
    calls: OutboundCalls | None = None


class Runtime:
    """The parts of one app that namespaces, workers and the HTTP API share. Its store is opened at the first use."""

    def __init__(
        self, url: str, declared: Declarations, settings: Settings, retention: Retention | None, given: Given
    ) -> None:
        self.url, self.declared, self.settings, self.retention = url, declared, settings, retention
        self.settings_in_code: frozenset[str] = (
            frozenset()
        )  #: names of those that are no defaults and not of the environment
        self.observers = Observers()  #: called with what this process does with jobs
        self.clock, self.rng, self.ids = given.clock or SystemClock(), given.rng or SystemRng(), SystemIds()
        self.threads = SystemThreads()
        self.new_id = self.ids.job_id
        self.current_trace: Callable[[], str | None] = _no_trace
        self._given_store, self._given_calls = given.store, given.calls
        self._artifacts: ArtifactBackend | None = None  #: made at its first use
        self._metrics: Metrics | None = None
        self._open_nothing()
        _runtimes.add(self)
        self.extensions = declared.extensions
        self.extensions.attach(self)

    @property
    def tasks(self) -> dict[str, Task[Any, Any]]:
        return self.declared.tasks

    @property
    def admission(self) -> Admission:
        return self.declared.admission

    @property
    def payload_limit(self) -> int:
        return self.settings.payload_limit

    # -- opening and closing ----------------------------------------------------------------------------------------
    async def engine(self) -> Engine:
        """Return the engine of the running event loop. It is opened if it is not open yet."""
        found = self._engines.by_loop.get(asyncio.get_running_loop())
        if found is not None:
            return found
        portal = self._portal
        if portal is not None and portal.runs_here:  # it has an engine of its own
            return await portal.engine()
        return await self._engines.open()

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        """Do *work* in a transaction of the store, and return its answer after the commit."""
        return await (await self.engine()).store.transact(work, reads=reads, atomic=atomic)

    async def make_engine(self) -> Engine:
        """Return a new engine with a store of its own, opened in the running loop."""
        self.declared.check()
        store = self.make_store()
        try:
            await store.open()
            if isinstance(store, RegistersLanes):
                own = [task.lane for task in self.declared.tasks.values()]
                await store.register([*own, *(lane._replace(fair=True) for lane in own)])
            await self.extensions.opened(store)
            broker = await self._make_broker(store)
        except BaseException:
            await store.close()
            raise
        engine = self._engine_on(store, self._find_artifacts(), broker)
        engine.batches[BatchAction.REPLAY] = replay_batch
        try:
            await read_overrides(engine)
        except BaseException:
            await store.close()
            raise
        return engine

    def closed_engine(self) -> Engine:
        """Return an engine for calls that need no event loop: enqueues on SQLite and on connections of callers."""
        return self._engines.anywhere()

    def direct_store(self) -> EnqueuesDirectly | None:
        """Return the store that any thread may write to, or None."""
        return self._engines.direct()

    def read_secret_keys(self) -> tuple[bytes, ...]:
        """Return the keys of the app, the newest first. Raises `Conflict` where the setting `secret` is needed and not given."""
        return self._secret_keys()

    @cached_property
    def _secret_keys(self) -> Callable[[], tuple[bytes, ...]]:
        return find_secret_keys("memory:" if self._given_store else self.url, self.settings, self.ids)

    def make_store(self) -> Store:
        """Return the app's store, which is not open yet."""
        check_import()
        store = self._given_store or make_store(self.url, self.clock, self.threads)
        store.hooks, store.extensions = self.declared.hooks, self.extensions.store
        return store

    async def close(self) -> None:
        """Close the engine of the running loop, and those that no loop uses."""
        await self._engines.close()

    def close_sync(self) -> None:
        """End the thread and the connections that calls without an event loop have opened."""
        self._close_portal()
        self._engines.close_idle()

    @contextmanager
    def replaced(self, *, store: Store, clock: Clock) -> Iterator[None]:
        """Use another *store* and *clock* inside the block, for tests."""
        before = self.__dict__.copy()
        self.__dict__.pop("_secret_keys", None)  # those of the other database
        self.url, self._given_store, self.clock = "memory://", store, clock
        self._artifacts = make_artifacts("memory://") if self.settings.artifacts else None
        self._open_nothing()
        try:
            yield
        finally:
            self._close_portal()
            self.__dict__.pop("_secret_keys", None)
            self.__dict__.update(before)

    def dispatch_through(self, address: str) -> None:
        """Let workers get due jobs from this broker, as the setting `dispatch` does. Call it before the app is used."""
        read = Settings.read({"dispatch": address}, {}).dispatch
        self.settings = replace(self.settings, dispatch=read)

    def leave_to_parent(self) -> None:
        """Open nothing that a forked process inherited, and close nothing of it."""
        self._engines.leave()
        if self._portal is not None:
            self._portal.leave()
        _parents.append((self._engines, self._portal))
        self._open_nothing()

    def _open_nothing(self) -> None:
        self._engines = Engines(self.make_engine, self._make_closed_engine, owned=self._given_store is None)
        self._portal: Portal | None = None
        self._portal_lock = threading.Lock()

    def _make_closed_engine(self) -> Engine:
        self.declared.check()
        return self._engine_on(self.make_store(), None, None)

    def _engine_on(
        self, store: Store, artifacts: ArtifactBackend | None, broker: Dispatcher | None
    ) -> Engine:
        return Engine(
            store,
            self.declared.tasks,
            self.settings,
            self.clock,
            self.rng,
            self.ids,
            artifacts,
            self.declared.admission,
            self.observers,
            self.make_calls,
            broker,
            secret_keys=self.read_secret_keys,
            codes=self.declared.codes,
            schedules=self.declared.schedules,
        )

    async def _make_broker(self, store: Store) -> Dispatcher | None:
        """Return what hands out due jobs, where the settings name a broker; None for a store that tests put in."""
        address = self.settings.dispatch
        if address is None or self._given_store is not None:
            return None
        dispatch = make_dispatch(address, await name_of(store, self.ids), self.clock)
        return Dispatcher(
            dispatch, shown(address), store, self.clock, self.declared.tasks, self.declared.admission
        )

    def make_calls(self) -> OutboundCalls:
        return self._given_calls or make_outbound(self.settings.outbound_allow)

    def _find_artifacts(self) -> ArtifactBackend | None:
        if self._artifacts is None and self.settings.artifacts is not None:
            self._artifacts = make_artifacts(self.settings.artifacts)
        return self._artifacts

    # -- without an event loop --------------------------------------------------------------------------------------
    @property
    def portal(self) -> Portal:
        """An event loop in a thread of its own, which runs async calls for sync code."""
        with self._portal_lock:  # two threads that come first at the same time share one
            if self._portal is None or not self._portal.is_open:
                self._portal = Portal(self.make_engine, self.threads)
            return self._portal

    def run_sync(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run *work* in the portal's loop, and return its answer."""
        return self.portal.wait_for(work)

    def _close_portal(self) -> None:
        if self._portal is not None:
            self._portal.close()

    # -- what tasks and handles need --------------------------------------------------------------------------------
    async def send(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Enqueued]:
        """Store *jobs*, all or none."""
        return await (await self.engine()).enqueue(jobs, connection)

    def send_sync(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Enqueued]:
        """`send` for code without an event loop."""
        if connection is not None:
            return self.closed_engine().enqueue_sync(jobs, connection)
        direct = self._engines.direct()
        if direct is not None:
            answers = direct.enqueue_sync(jobs)
            self.observers.enqueued(jobs, answers)
            return answers
        return self.portal.call(lambda engine: engine.enqueue(jobs))

    async def reject(self, job: NewJob, code: str, message: str | None) -> JobId:
        """Record a refused input as a failed job."""
        return await (await self.engine()).reject(job, code, message)

    async def result(self, job_id: str, timeout: Duration | None) -> Any:
        return await Jobs(self).result(job_id, timeout)

    def result_sync(self, job_id: str, timeout: Duration | None) -> Any:
        return self.portal.call(lambda engine: Jobs(OpenEngine(engine)).result(job_id, timeout))

    async def job(self, job_id: str) -> JobRow:
        return await Jobs(self).get(job_id)

    def most_attempts(self, owner: str) -> int | None:
        return self.declared.most_attempts(owner)

    # -- what namespaces need ---------------------------------------------------------------------------------------
    def publish_now(self, write: Callable[[Engine], Awaitable[None]]) -> None:
        """Run *write* from code without an event loop, and wait for it."""
        self.portal.call(write)

    def guard(self, dependency: Dependency) -> GuardedCall:
        """Return what stands around calls of *dependency* that are made outside of a worker."""
        return GuardedCall(dependency, self.engine, lambda: self.portal)

    def make_relay(self, engine: Engine) -> Relay:
        """Return a relay for the topics of the app. Raises `UsageError` when it has none."""
        return make_relay(engine, self.declared.topics, self._make_transport)

    def _make_transport(self, address: str, targets: Mapping[str, Any], clock: Clock) -> Any:
        return make_transport(address, targets, clock, self.make_calls)

    @property
    def metrics(self) -> Metrics:
        """The metrics of this process. Counting begins at the first access."""
        if self._metrics is None:
            from holdfast.metrics.metrics import Metrics

            self._metrics = Metrics(
                self.engine,
                self.observers,
                self.clock,
                prefix=self.settings.metrics_prefix,
                own_queue=self._own_queue,
                measures=self.extensions.measures,
            )
        return self._metrics

    def _own_queue(self, task: str) -> str | None:
        found = self.declared.tasks.get(task)
        return None if found is None else found.policy.queue


def _no_trace() -> None:
    return None

"""`Holdfast`: the app a user makes, decorates functions with, enqueues through and runs workers from."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import gc_tuning
from holdfast.credits.verbs import EVERY as CREDITS_EVERY
from holdfast.credits.verbs import Credits
from holdfast.declaring import Declaring
from holdfast.domain.job import Enqueued, JobId, NewJob
from holdfast.domain.lanes import Dependency
from holdfast.domain.operation import OperationAction
from holdfast.domain.urls import shown
from holdfast.domain.validation import several, typed, whole, word
from holdfast.engine.dispatcher import Dispatcher, name_of
from holdfast.engine.engine import Engine
from holdfast.engine.engines import Engines
from holdfast.engine.main_guard import check_import, check_importing, check_main
from holdfast.engine.observers import Observers
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.outbox_store import PublishesDirectly
from holdfast.engine.policies.reloading import find
from holdfast.engine.ports import ArtifactBackend, Clock, RegistersLanes, Retention, Rng, Store
from holdfast.engine.settings import Settings
from holdfast.errors import UnknownTask, UsageError
from holdfast.logs import Log
from holdfast.maintenance.dispatch import DISPATCH_EVERY as HAND_OUT_EVERY
from holdfast.maintenance.dispatch import DispatchFeed as HandingOut
from holdfast.maintenance.tasks import Maintenance
from holdfast.portal import Portal, SyncVerbs
from holdfast.relaying import Relaying
from holdfast.signals import reload_on_signal, stop_on_signals
from holdfast.verbs import Verbs
from holdfast.webhooks.delivery import install as install_webhooks
from holdfast.webhooks.fanout import DISPATCH_EVERY, Fanout
from holdfast.webhooks.notifiers import NOTIFY_EVERY, NotifierFeed
from holdfast.webhooks.replay import replay_batch
from holdfast.wiring import (
    SystemClock,
    SystemIds,
    SystemRng,
    SystemThreads,
    database_url,
    find_secret_keys,
    make_artifacts,
    make_books,
    make_dispatch,
    make_outbound,
    make_store,
    thread_pool,
)
from holdfast.worker.guarded_calls import GuardedCall
from holdfast.worker.watchdog import Watchdog
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.domain.health import Health, Thresholds
    from holdfast.metrics.metrics import Metrics

log = Log("holdfast.app")

_apps: weakref.WeakSet[Holdfast] = weakref.WeakSet()
#: What the parents of this process have opened. It stays here, because dropping a connection may end the parent's.
_parents: list[tuple[Engines, Portal | None]] = []


def _leave_to_parent() -> None:
    """Let every app of a forked process begin with nothing open. What is open belongs to the parent."""
    for app in list(_apps):
        app._leave_to_parent()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_leave_to_parent)


class Holdfast(Declaring, Relaying, Verbs):
    """A set of tasks over one database.

    *url* defaults to `HOLDFAST_DATABASE_URL`, else `sqlite:///holdfast.db`. Settings (`lease`, `heartbeat`, `poll`,
    `reclaim_every`, `concurrency`, `grace`, …) come by keyword or from `HOLDFAST_<NAME>`. *policies* is a file that is
    laid over what the code says about tasks; by default `HOLDFAST_POLICIES`, else ./holdfast.toml if there is one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        retention: Retention | None = None,
        policies: str | Path | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
        store: Store | None = None,
        calls: OutboundCalls | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(find(policies, os.environ))
        self.url = database_url(url)
        self.settings = Settings.read(settings, os.environ)
        if retention is not None:
            typed("retention", retention, Retention, 'a Retention(results="7d", jobs="30d")')
        self.retention = retention
        self.observers = Observers()  #: told of what this process does with jobs
        self._metrics: Metrics | None = None
        self.payload_limit = self.settings.payload_limit
        self._clock, self._rng, self._ids = clock or SystemClock(), rng or SystemRng(), SystemIds()
        self._threads = SystemThreads()
        self._given_store, self._given_calls = store, calls
        self._artifacts: ArtifactBackend | None = (
            None  #: made when it is needed, where the settings name a place
        )
        self._open_nothing()
        _apps.add(self)
        self.credits = Credits(self.engine, self.tasks, make_books, lambda: self.portal)
        self.new_id = self._ids.job_id
        self.current_trace: Callable[[], str | None] = _no_trace
        if self.settings.tracing:
            from holdfast.tracing import instrument

            instrument(self)

    # -- opening ----------------------------------------------------------------------------------------------------
    async def __aenter__(self) -> Holdfast:
        await self.engine()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def engine(self) -> Engine:
        """The engine of the running event loop; opens the store when it is not open yet."""
        return await self._engines.here()

    async def make_engine(self) -> Engine:
        """A new engine with a store of its own, opened in the running loop."""
        self._check_policies()
        store = self._make_store()
        try:
            await store.open()
            if isinstance(store, RegistersLanes):
                own = [task.lane for task in self.tasks.values()]
                await store.register([*own, *(lane._replace(fair=True) for lane in own)])
            if await self.credits.declare(store):
                self._sell()
            broker = await self._make_broker(store)
        except BaseException:
            await store.close()
            raise
        given = self._find_artifacts(), self.admission, self.observers, self._calls
        engine = Engine(
            store,
            self.tasks,
            self.settings,
            self._clock,
            self._rng,
            self._ids,
            *given,
            broker,
            secret_keys=self._secret_keys,
            codes=self.codes,
        )
        engine.schedules = self.schedules
        engine.batches[OperationAction.REPLAY] = replay_batch
        return engine

    @cached_property
    def _secret_keys(self) -> Callable[[], tuple[bytes, ...]]:
        return find_secret_keys("memory:" if self._given_store else self.url, self.settings, self._ids)

    def _make_closed_engine(self) -> Engine:
        """One that needs no running loop, and opens nothing."""
        self._check_policies()
        given = self._clock, self._rng, self._ids
        return Engine(
            self._make_store(), self.tasks, self.settings, *given, observers=self.observers, codes=self.codes
        )

    def _make_store(self) -> Store:
        check_import()
        store = self._given_store or make_store(self.url, self._clock, self._threads)
        store.hooks = self._hooks
        return store

    async def _make_broker(self, store: Store) -> Dispatcher | None:
        """What hands out due jobs, where the settings name it; not for a store that tests have put in."""
        address = self.settings.dispatch
        if address is None or self._given_store is not None:
            return None
        dispatch = make_dispatch(address, await name_of(store, self._ids), self._clock)
        return Dispatcher(dispatch, shown(address), store, self._clock, self.tasks, self.admission)

    def _calls(self) -> OutboundCalls:
        return self._given_calls or make_outbound(self.settings.outbound_allow)

    def _find_artifacts(self) -> ArtifactBackend | None:
        if self._artifacts is None and self.settings.artifacts is not None:
            self._artifacts = make_artifacts(self.settings.artifacts)
        return self._artifacts

    async def close(self) -> None:
        await self._engines.close()

    @contextmanager
    def replaced(self, *, store: Store, clock: Clock) -> Iterator[Holdfast]:
        """Another *store* and *clock* inside the block, for tests; afterwards everything is as it was."""
        before = self.__dict__.copy()
        self.url, self._given_store, self._clock = "memory://", store, clock
        self._artifacts = make_artifacts("memory://") if self.settings.artifacts else None
        self._open_nothing()
        try:
            yield self
        finally:
            self._close_portal()
            self.__dict__.update(before)

    def _open_nothing(self) -> None:
        """Begin without an engine and without a portal."""
        self._engines = Engines(self.make_engine, self._make_closed_engine, owned=self._given_store is None)
        self._portal: Portal | None = None
        self._portal_lock = threading.Lock()

    def _leave_to_parent(self) -> None:
        self._engines.leave()
        if self._portal is not None:
            self._portal.leave()
        _parents.append((self._engines, self._portal))
        self._open_nothing()

    async def migrate(self) -> list[str]:
        return await self._make_store().migrate()

    def dispatch_through(self, address: str) -> None:
        """Workers of this app get due jobs from this broker, as by the setting `dispatch`; say it before the app is used."""
        said = Settings.read({"dispatch": address}, {}).dispatch
        self.settings = replace(self.settings, dispatch=said)

    # -- what tasks and handles call --------------------------------------------------------------------------------
    async def send(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Enqueued]:
        return await (await self.engine()).enqueue(jobs, connection)

    def send_sync(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Enqueued]:
        if connection is not None:
            return self._sync_engine().enqueue_sync(jobs, connection)
        direct = self._engines.direct()
        if direct is not None:
            answers = direct.enqueue_sync(jobs)
            self.observers.enqueued(jobs, answers)
            return answers
        return self.portal.call(lambda engine: engine.enqueue(jobs))

    def publish_sync(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002 - as `enqueue` calls it
        connection: Any = None,
    ) -> str:
        """`publish` for code without an event loop."""
        engine = self._sync_engine()
        message = engine.new_message(
            topic, payload, key=key, headers=headers, message_id=id, trace=self.current_trace()
        )
        direct: object = self._engines.direct()
        if connection is not None:
            engine.publish_sync([message], connection)
        elif isinstance(direct, PublishesDirectly):
            direct.publish_sync([message])
        else:
            self.portal.call(lambda there: there.publish([message]))
        return message.id

    def _sync_engine(self) -> Engine:
        """An engine for calls that need no event loop: enqueueing on SQLite and on connections of the caller's."""
        self._check_policies()
        return self._engines.anywhere()

    @property
    def portal(self) -> Portal:
        """The way to call async verbs from sync code: an event loop in a thread of its own."""
        with self._portal_lock:  # two threads that come first at the same time share one
            if self._portal is None or not self._portal.is_open:
                self._portal = Portal(self.make_engine, self._threads)
            return self._portal

    @property
    def sync(self) -> SyncVerbs:
        """Every verb for code without an event loop: `app.sync.retry(id)` is `await app.retry(id)`."""
        return SyncVerbs(lambda: self.portal, self._close_sync)

    def _close_sync(self) -> None:
        self._close_portal()
        self._engines.close_idle()

    def _close_portal(self) -> None:
        if self._portal is not None:
            self._portal.close()

    def dependency_call(self, name: str, shard: str = "") -> GuardedCall:
        """Guard a call of the dependency *name* by its breaker, in any process: `with app.dependency_call("bank"): …`, or
        `async with`. Raises `DependencyHeld` while the breaker is open.

        In a handler use `job.dependency(name)`, which puts the job off by itself.
        """
        dependency = Dependency(word("name", name), shard)
        return GuardedCall(dependency, self.engine, lambda: self.portal)

    async def reject(
        self,
        task: str,
        arguments: dict[str, Any],
        code: str,
        *,
        message: str | None = None,
        owner: str | None = None,
    ) -> JobId:
        """Put a refused input on record: a job that is failed from the start, without a dead letter."""
        if task not in self.tasks:
            raise UnknownTask(task, self.tasks)
        [job] = self.tasks[task].options(owner=owner)._jobs([arguments], checked=False)
        return await (await self.engine()).reject(job, code, message)

    # -- watching ---------------------------------------------------------------------------------------------------
    @property
    def metrics(self) -> Metrics:
        """What this process does and how the jobs stand, for Prometheus; counting begins when it is first asked for."""
        if self._metrics is None:
            from holdfast.metrics.metrics import Metrics

            self._metrics = Metrics(
                self.engine,
                self.observers,
                self._clock,
                prefix=self.settings.metrics_prefix,
                own_queue=self._own_queue,
            )
        return self._metrics

    def serve_metrics(self, port: int, host: str = "127.0.0.1") -> AbstractAsyncContextManager[int]:
        """Answer `/metrics`, `/livez`, `/readyz` and `/maintenance` on *port* inside the block, as a worker does by
        `--metrics-port`; gives the port (of 0: the one that was found free)."""
        from holdfast.metrics.port import Port

        return Port(self.metrics, self.engine).open(host, port)

    def _own_queue(self, task: str) -> str | None:
        return self.tasks[task].policy.queue if task in self.tasks else None

    async def health(self, thresholds: Thresholds | None = None) -> Health:
        """Whether all is well, check by check. *thresholds* default to `HOLDFAST_HEALTH_…` of the environment."""
        from holdfast.domain.health import Thresholds, judge_health
        from holdfast.engine.health_inputs import read_health_inputs

        vitals = await read_health_inputs(await self.engine(), self.schedules)
        return judge_health(vitals, thresholds or Thresholds.read(os.environ))

    # -- working ----------------------------------------------------------------------------------------------------
    async def run_worker(
        self,
        *,
        concurrency: int | None = None,
        queues: Sequence[str] | None = None,
        maintenance: bool = True,
        until_idle: bool = False,
        handle_signals: bool = False,
        relay: bool = False,
    ) -> None:
        """Work until cancelled or told to stop. *until_idle* returns when nothing is left that could be run. *relay*: bring
        messages to their targets, too, if there are topics."""
        if concurrency is not None:
            whole("concurrency", concurrency, 1, 1_000_000)
        if queues is not None and not several("queues", queues, str, 'names, e.g. ["default"]'):
            raise UsageError("queues is empty; name those to serve, or leave it out to serve all")
        if strange := sorted(set(queues or ()) - {task.policy.queue for task in self.tasks.values()}):
            log.warning(
                "queue.unknown", queues=strange, hint="no task is in them; jobs get there by queue= alone"
            )
        check_importing()
        if any(task.policy.execute == "process" for task in self.tasks.values()):
            check_main()
        engine = await self.engine()
        for task in install_webhooks(self):
            self._reloader.adopt(task)
        async with AsyncExitStack() as stack:
            resources = await stack.enter_async_context(self._lifespan()) if self._lifespan else None
            pool = thread_pool((concurrency or self.settings.concurrency) + 4)
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            worker = Worker(
                engine,
                self._threads,
                pool,
                queues=queues,
                concurrency=concurrency,
                middleware=self._middleware,
                resources=resources,
                until_idle=until_idle,
            )
            watchdog = Watchdog(worker.attempt_of)
            watchdog.start(self._threads)
            stack.callback(watchdog.stop)
            if handle_signals:  # the process is ours
                stop_on_signals(worker.stop, stack, self._clock, self.settings.grace.total_seconds())
                reload_on_signal(lambda: self._reloader.reload(self.tasks, asked=True), stack)
                gc_tuning.freeze_imports()
            gc_tuning.raise_threshold()
            if self._reloader.path is not None:
                looking = asyncio.create_task(self._reloader.run(self.tasks, self._clock), name="policies")
                stack.push_async_callback(_end, looking)
            if relay and self.topics:
                relaying = asyncio.create_task(self.make_relay(engine).run(), name="relay")
                stack.push_async_callback(_end, relaying)
            await _run_together(worker, self._maintenance(engine) if maintenance else None)

    async def run_maintenance(self, *, handle_signals: bool = False) -> None:
        """Do the duties and no job, until cancelled or told to stop: for a house whose workers run with `maintenance=False`."""
        engine = await self.engine()
        for task in install_webhooks(self):
            self._reloader.adopt(task)
        async with AsyncExitStack() as stack:
            running = asyncio.create_task(self._maintenance(engine).run(), name="maintenance")
            stopping = asyncio.Event()
            stack.push_async_callback(_end, running)
            if handle_signals:
                stop_on_signals(stopping.set, stack, self._clock)
                reload_on_signal(lambda: self._reloader.reload(self.tasks, asked=True), stack)
            if self._reloader.path is not None:
                looking = asyncio.create_task(self._reloader.run(self.tasks, self._clock), name="policies")
                stack.push_async_callback(_end, looking)
            log.info("maintenance.started")
            await stopping.wait()
        log.info("maintenance.stopped")

    def _maintenance(self, engine: Engine) -> Maintenance:
        maintenance = Maintenance(engine, self.retention, self.schedules)
        maintenance.add("webhooks", DISPATCH_EVERY, Fanout(engine).run)
        notifying = NotifierFeed(engine, lambda: self.policies.notifiers)
        maintenance.add("notifiers", NOTIFY_EVERY, notifying.run, apart=True)
        if engine.broker is not None:
            maintenance.add("dispatch", HAND_OUT_EVERY, HandingOut(engine, engine.broker).run)
        if self.external_tasks.hook in self._hooks:
            maintenance.add(
                "external_tasks", self.external_tasks.every, lambda: self.external_tasks.look(engine.store)
            )
        if self.credits.hook in self._hooks:
            maintenance.add("credits", CREDITS_EVERY, self.credits.run_maintenance)
        return maintenance


def _no_trace() -> None:
    return None


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _run_together(worker: Worker, maintenance: Maintenance | None) -> None:
    maintaining = asyncio.create_task(maintenance.run(), name="maintenance") if maintenance else None
    working = asyncio.create_task(worker.run(), name="worker")
    cancelled = False
    try:
        while not working.done():
            try:
                await asyncio.shield(working)
            except asyncio.CancelledError:
                worker.stop()  # a second time: at once
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError
        working.result()
    finally:
        if maintaining is not None:
            await _end(maintaining)

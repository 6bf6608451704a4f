"""`Holdfast`: the app a user makes, decorates functions with, enqueues through and runs workers from."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from holdfast.credits.verbs import EVERY as CREDITS_EVERY
from holdfast.credits.verbs import Credits
from holdfast.domain.breaker import BreakerPolicy
from holdfast.domain.budget import BudgetPolicy
from holdfast.domain.classify import Rule
from holdfast.domain.credit import MOST
from holdfast.domain.duration import Duration, optional
from holdfast.domain.errand import AGAIN_AFTER, Encode
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.job import (
    Enqueued,
    JobId,
    NewJob,
)
from holdfast.domain.knobs import span, whole
from holdfast.domain.limiter import LimiterPolicy
from holdfast.domain.limits import Limits, whole_queue
from holdfast.domain.moves import Kind
from holdfast.domain.policy import Retry
from holdfast.domain.schedule import Missed, Schedule, When
from holdfast.duties.dispatching import DISPATCH_EVERY as HAND_OUT_EVERY
from holdfast.duties.dispatching import Dispatching as HandingOut
from holdfast.duties.duties import Duties
from holdfast.engine import schedules
from holdfast.engine.admission import Admission, Probe
from holdfast.engine.broker import Broker, name_of
from holdfast.engine.calling import Calls
from holdfast.engine.engine import Engine
from holdfast.engine.engines import Engines
from holdfast.engine.errands import Errands
from holdfast.engine.observing import Observers
from holdfast.engine.outboxstore import PublishesDirectly
from holdfast.engine.policies.reloading import Reloader, find
from holdfast.engine.policies.values import Policies
from holdfast.engine.ports import Artefacts, Clock, Hook, RegistersLanes, Retention, Rng, Store
from holdfast.engine.settings import Settings
from holdfast.engine.tasks import EXECUTORS, STUCK_ACTIONS, Policy, Task
from holdfast.engine.transport import Topic, shown
from holdfast.errors import UnknownTask, UsageError
from holdfast.portal import Portal, SyncVerbs
from holdfast.relaying import Relaying
from holdfast.verbs import Verbs
from holdfast.webhooks.delivering import install as install_webhooks
from holdfast.webhooks.dispatching import DISPATCH_EVERY, Dispatching
from holdfast.wiring import (
    SystemClock,
    SystemIds,
    SystemRng,
    SystemThreads,
    database_url,
    http_probe,
    make_artefacts,
    make_books,
    make_dispatch,
    make_errand_books,
    make_outbound,
    make_store,
    thread_pool,
)
from holdfast.worker.attempts import Middleware
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.domain.health import Health, Thresholds
    from holdfast.metrics.metrics import Metrics

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Holdfast(Relaying, Verbs):
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
        calls: Calls | None = None,
        **settings: Any,
    ) -> None:
        self.url = database_url(url)
        self.settings = Settings.read(settings, os.environ)
        self.retention = retention
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.topics: dict[str, Topic] = {}
        self._reloader = Reloader(find(policies, os.environ))
        self.admission = Admission(lambda: self._reloader.policies)
        self.observers = Observers()  #: told of what this process does with jobs
        self._metrics: Metrics | None = None
        self.payload_limit = self.settings.payload_limit
        self._clock, self._rng, self._ids = clock or SystemClock(), rng or SystemRng(), SystemIds()
        self._threads = SystemThreads()
        self._given_store, self._given_calls = store, calls
        self._artefacts: Artefacts | None = None  #: made when it is needed, where the settings name a place
        self._engines = Engines(self.make_engine, self._make_closed_engine, owned=store is None)
        self._portal: Portal | None = None
        self._lifespan: Lifespan | None = None
        self._middleware: list[Middleware] = []
        self._hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.credits = Credits(self.engine, self.tasks, make_books, lambda: self.portal)
        self.errands = Errands(self.tasks, make_errand_books)
        self.new_id = self._ids.job_id
        self.current_trace: Callable[[], str | None] = _no_trace
        if self.settings.tracing:
            from holdfast.tracing import instrument

            instrument(self)

    # -- declaring --------------------------------------------------------------------------------------------------
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        lease: Duration | None = None,
        depends_on: str | None = None,
        execute: str | None = None,
        max_crashes: int = 3,
        store_result: bool = True,
        deadline: Duration | None = None,
        dedupe_for: Duration | None = None,
        start_within: Duration | None = None,
        stuck_after: Duration | None = "30m",
        stuck_action: str = "report",
        version: int = 1,
        rules: Sequence[Rule] = (),
        limits: Limits | None = None,
        cost: float = 1.0,
        price: int = 0,
        topic: str | None = None,
        encode: Encode | None = None,
        again_after: Duration = AGAIN_AFTER,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Make a function a task. *execute* is "async" (on the loop), "thread" or "process"; by default an
        `async def` runs on the loop, a plain `def` in a thread, and a plain `def` with a *timeout* in a process,
        because a thread cannot be stopped. "outside": no worker runs it; others do, and tell of it (`begin`, `end`). They are
        told of its jobs by messages of *topic*, written by *encode*, and again when nobody has begun after *again_after*."""

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            return self._add_task(function, **options)

        return decorate(*function) if function else decorate

    def _add_task(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        lease: Duration | None = None,
        execute: str | None = None,
        deadline: Duration | None = None,
        dedupe_for: Duration | None = None,
        start_within: Duration | None = None,
        stuck_after: Duration | None = "30m",
        stuck_action: str = "report",
        rules: Sequence[Rule] = (),
        again_after: Duration = AGAIN_AFTER,
        **plain: Any,
    ) -> Task[P, R]:
        name = name or function.__name__
        if name in self.tasks:
            raise UsageError(f"there is a task named {name!r} already; give this one another name=")
        if execute is None:
            execute = "async" if inspect.iscoroutinefunction(function) else "process" if timeout else "thread"
        if execute not in EXECUTORS:
            raise UsageError(f"execute is {execute!r}; it is one of {', '.join(EXECUTORS)}")
        if execute == "async" and not inspect.iscoroutinefunction(function):
            raise UsageError(f"{name} is a plain function; it runs with execute='thread' or 'process'")
        if stuck_action not in STUCK_ACTIONS:
            raise UsageError(f"stuck_action is {stuck_action!r}; it is one of {', '.join(STUCK_ACTIONS)}")
        unknown = plain.keys() - Policy.__dataclass_fields__
        if unknown:
            raise UsageError(
                f"no task option {', '.join(sorted(unknown))}; there are: {', '.join(sorted(Policy.__dataclass_fields__))}"
            )
        policy = Policy(
            queue=queue,
            retry=Retry(retry) if isinstance(retry, int) else retry or Retry(),
            timeout=optional(timeout),
            lease=optional(lease),
            execute=execute,
            deadline=optional(deadline),
            dedupe_for=optional(dedupe_for),
            start_within=optional(start_within),
            stuck_after=optional(stuck_after),
            stuck_action=stuck_action,
            rules=tuple(rules),
            again_after=span("again_after", again_after, timedelta(milliseconds=100), timedelta(days=30)),
            **plain,
        )
        self._hand_over(name, policy)
        if whole("price", policy.price, 0, MOST):
            self._sell()
        task: Task[P, R] = Task(function, name, policy, self)
        self._reloader.adopt(task)
        self.tasks[name] = task
        return task

    @overload
    def schedule(
        self,
        when: When,
        /,
        *,
        name: str | None = None,
        missed: Missed = "once",
        args: Mapping[str, Any] | None = None,
        queue: str | None = None,
        owner: str | None = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]: ...

    @overload
    def schedule(
        self,
        task: Task[P, R],
        when: When,
        /,
        *,
        name: str | None = None,
        missed: Missed = "once",
        args: Mapping[str, Any] | None = None,
        queue: str | None = None,
        owner: str | None = None,
    ) -> Task[P, R]: ...

    def schedule(self, *given: Any, **options: Any) -> Any:
        """Enqueue a task by the clock: `@app.schedule(Cron("0 7 * * mon-fri", zone="Europe/Berlin"))` above
        `@app.task`, or `app.schedule(task, Every("5m"))`. *missed* says what becomes of ticks at which nobody was
        there: "once" (one job for all of them), "skip" or "all". *name* tells schedules of one task apart."""

        def keep(task: Any) -> Any:
            if not isinstance(task, Task) or self.tasks.get(task.name) is not task:
                raise UsageError(f"{task!r:.60} is not a task of this app; put @app.schedule above @app.task")
            declared = schedules.declare(task, given[-1], **options)
            if declared.name in self.schedules:
                raise UsageError(
                    f"there is a schedule named {declared.name!r} already; give this one another name="
                )
            self.schedules[declared.name] = declared
            return task

        return keep(given[0]) if len(given) == 2 else keep

    @property
    def policies(self) -> Policies:
        """What the policy file says, as it is in force now."""
        return self._reloader.policies

    def dependency(
        self,
        name: str,
        *,
        breaker: BreakerPolicy | None = BreakerPolicy(),  # noqa: B008 - a frozen value
        limiter: LimiterPolicy | None = LimiterPolicy(),  # noqa: B008
        budget: BudgetPolicy | None = BudgetPolicy(),  # noqa: B008
        probe: str | Probe | None = None,
    ) -> None:
        """How the calls of a dependency are guarded; None switches a mechanism off. Tasks name it by `depends_on=`.

        *probe* is asked before calls are tried again after an outage: a URL (any answer below 500 is a good one) or an
        async function that answers whether all is well.
        """
        self.admission.dependencies[name] = DependencyPolicy(breaker=breaker, limiter=limiter, budget=budget)
        if probe is not None:
            self.admission.probes[name] = http_probe(probe) if isinstance(probe, str) else probe

    def queue(self, name: str, limits: Limits) -> None:
        """The limits of a queue as a whole."""
        self.admission.queues[name] = whole_queue(limits)

    def lifespan(self, make: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """An async generator with one `yield`: resources of a worker process. Handlers find them as `job.resources`."""
        self._lifespan = asynccontextmanager(make)
        return make

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every attempt: `async def m(job, call): …; return await call()`. The first one added is outermost."""
        self._middleware.append(function)
        return function

    def on(self, *kinds: str) -> Callable[[Hook], Hook]:
        """A hook that runs in the transaction of the moves it names: raise, and none of them happened."""
        known = {kind.name: kind for kind in Kind}
        unknown = [kind for kind in kinds if kind not in known]
        if unknown:
            raise UsageError(f"no event {', '.join(unknown)}; there are: {', '.join(known)}")

        def keep(hook: Hook) -> Hook:
            self._hooks.append((frozenset(known[kind] for kind in kinds), hook))
            return hook

        return keep

    def _sell(self) -> None:
        """From now on the moves of jobs settle credits, before anybody else's hooks are told."""
        if self.credits.hook not in self._hooks:
            self._hooks.insert(0, self.credits.hook)

    def _hand_over(self, name: str, policy: Policy) -> None:
        """From now on the moves of jobs that others execute tell of them."""
        if policy.topic is None:
            if policy.encode is not None:
                raise UsageError(f"{name} has encode= and no topic=; say where its messages go")
            return
        if policy.execute != "outside":
            raise UsageError(f'{name} has a topic, so others execute it; declare it with execute="outside"')
        if self.errands.hook not in self._hooks:
            self._hooks.append(self.errands.hook)

    def _check_policies(self) -> None:
        if self.tasks:  # an app without any only looks at the database
            self._reloader.check(self.tasks)
        for name, task in self.tasks.items():
            topic = task.policy.topic
            if topic is not None and topic not in self.topics:
                raise UsageError(
                    f"jobs of {name} are handed to {topic}, which is no topic here; declare it with app.topic({topic!r}, …)"
                )

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
        store = self._given_store or make_store(self.url, self._clock, self._threads)
        store.hooks = self._hooks
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
        return Engine(
            store,
            self.tasks,
            self.settings,
            self._clock,
            self._rng,
            self._ids,
            self._find_artefacts(),
            self.admission,
            self.observers,
            self._calls,
            broker,
        )

    def dispatch_through(self, address: str) -> None:
        """Workers of this app get due jobs from this broker, as by the setting `dispatch`; say it before the app is used."""
        said = Settings.read({"dispatch": address}, {}).dispatch
        self.settings = replace(self.settings, dispatch=said)

    async def _make_broker(self, store: Store) -> Broker | None:
        """What hands out due jobs, where the settings name it; not for a store that tests have put in."""
        address = self.settings.dispatch
        if address is None or self._given_store is not None:
            return None
        dispatch = make_dispatch(address, await name_of(store, self._ids), self._clock)
        return Broker(dispatch, shown(address), store, self._clock, self.tasks, self.admission)

    def _calls(self) -> Calls:
        return self._given_calls or make_outbound(self.settings.outbound_allow)

    def _find_artefacts(self) -> Artefacts | None:
        if self._artefacts is None and self.settings.artefacts is not None:
            self._artefacts = make_artefacts(self.settings.artefacts)
        return self._artefacts

    async def close(self) -> None:
        await self._engines.close()

    @contextmanager
    def replaced(self, *, store: Store, clock: Clock) -> Iterator[Holdfast]:
        """Another *store* and *clock* inside the block, for tests; afterwards everything is as it was."""
        before = self.__dict__.copy()
        self.url, self._given_store, self._clock = "memory://", store, clock
        self._artefacts = make_artefacts("memory://") if self.settings.artefacts else None
        self._engines = Engines(self.make_engine, self._make_closed_engine, owned=False)
        self._portal = None
        try:
            yield self
        finally:
            if (portal := vars(self)["_portal"]) is not None:
                portal.close()
            self.__dict__.update(before)

    async def migrate(self) -> list[str]:
        store = self._given_store or make_store(self.url, self._clock, self._threads)
        return await store.migrate()

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

    def _make_closed_engine(self) -> Engine:
        self._check_policies()
        store = self._given_store or make_store(self.url, self._clock, self._threads)
        store.hooks = self._hooks
        given = self._clock, self._rng, self._ids
        return Engine(store, self.tasks, self.settings, *given, observers=self.observers)

    @property
    def portal(self) -> Portal:
        """The way to call async verbs from sync code: an event loop in a thread of its own."""
        if self._portal is None:
            self._portal = Portal(self.make_engine, self._threads)
        return self._portal

    @property
    def sync(self) -> SyncVerbs:
        """Every verb for code without an event loop: `app.sync.retry(id)` is `await app.retry(id)`."""
        return SyncVerbs(self.portal)

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
        [job] = self.tasks[task].options(owner=owner)._jobs([arguments])
        return await (await self.engine()).reject(job, code, message)

    # -- watching ---------------------------------------------------------------------------------------------------
    @property
    def metrics(self) -> Metrics:
        """What this process does and how the jobs stand, for Prometheus; counting begins when it is first asked for."""
        if self._metrics is None:
            from holdfast.metrics.metrics import Metrics

            self._metrics = Metrics(self.engine, self.observers, self._clock)
        return self._metrics

    async def health(self, thresholds: Thresholds | None = None) -> Health:
        """Whether all is well, check by check. *thresholds* default to `HOLDFAST_HEALTH_…` of the environment."""
        from holdfast.domain.health import Thresholds, judge_health
        from holdfast.engine.vitals import take_vitals

        vitals = await take_vitals(await self.engine(), self.schedules)
        return judge_health(vitals, thresholds or Thresholds.read(os.environ))

    # -- working ----------------------------------------------------------------------------------------------------
    async def run_worker(
        self,
        *,
        concurrency: int | None = None,
        queues: Sequence[str] | None = None,
        duties: bool = True,
        until_idle: bool = False,
        handle_signals: bool = False,
        relay: bool = False,
    ) -> None:
        """Work until cancelled or told to stop. *until_idle* returns when nothing is left that could be run. *relay*: bring
        messages to their targets, too, if there are topics."""
        engine = await self.engine()
        for task in install_webhooks(self):
            self._reloader.adopt(task)
        async with AsyncExitStack() as stack:
            resources = await stack.enter_async_context(self._lifespan()) if self._lifespan else None
            pool = thread_pool((concurrency or self.settings.concurrency) + 4)
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            chores = Duties(engine, self.retention, self.schedules)
            chores.add("webhooks", DISPATCH_EVERY, Dispatching(engine).run)
            if engine.broker is not None:
                chores.add("dispatch", HAND_OUT_EVERY, HandingOut(engine, engine.broker).run)
            if self.errands.hook in self._hooks:
                chores.add("errands", self.errands.every, lambda: self.errands.look(engine.store))
            if self.credits.hook in self._hooks:
                chores.add("credits", CREDITS_EVERY, self.credits.keep_house)
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
            if handle_signals:  # the process is ours
                _stop_on_signals(worker, stack)
                _reload_on_signal(self._reloader, self.tasks, stack)
                gc.collect()
                gc.freeze()  # what was imported lives on: no later collection has to walk it
            if self._reloader.path is not None:
                looking = asyncio.create_task(self._reloader.run(self.tasks, self._clock), name="policies")
                stack.push_async_callback(_end, looking)
            if relay and self.topics:
                relaying = asyncio.create_task(self.make_relay(engine).run(), name="relay")
                stack.push_async_callback(_end, relaying)
            await _run_together(worker, chores if duties else None)


def _no_trace() -> None:
    return None


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _run_together(worker: Worker, chores: Duties | None) -> None:
    housework = asyncio.create_task(chores.run(), name="duties") if chores else None
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
        if housework is not None:
            housework.cancel()
            await asyncio.gather(housework, return_exceptions=True)


def _stop_on_signals(worker: Worker, stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
        stack.callback(loop.remove_signal_handler, number)


def _reload_on_signal(reloader: Reloader, tasks: Mapping[str, Task[Any, Any]], stack: AsyncExitStack) -> None:
    """SIGHUP reads the policies again. At a terminal it keeps its meaning: the terminal is gone, and so are we."""
    if reloader.path is None or sys.stdin is None or sys.stdin.isatty():
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: reloader.reload(tasks, asked=True))
    stack.callback(loop.remove_signal_handler, signal.SIGHUP)

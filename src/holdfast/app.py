"""`Holdfast`: the app a user makes, decorates functions with, enqueues through and runs workers from."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from holdfast.declarations import Declarations, hook_kinds
from holdfast.engine.admission import Probe
from holdfast.engine.breakers import Breakers
from holdfast.engine.dead_letters import DeadLetters
from holdfast.engine.events import Events
from holdfast.engine.external import ExternalJobs
from holdfast.engine.jobs import Jobs
from holdfast.engine.keys import Keys
from holdfast.engine.operations import Operations
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.policies import PolicyOverrides
from holdfast.engine.ports import Hook, Store
from holdfast.engine.queues import Queues
from holdfast.engine.schedules import Schedules
from holdfast.errors import UsageError
from holdfast.extensions import Extension
from holdfast.jobs.machine import Clock, Rng
from holdfast.jobs.retention import Retention
from holdfast.jobs.schedule import When
from holdfast.outbox.model import TopicPolicy
from holdfast.outbox.transport import Topic
from holdfast.outbox.verbs import Outbox
from holdfast.processes import run_maintenance, run_worker
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.limits import Limits
from holdfast.runtime import Given, Runtime
from holdfast.statistics.verbs import Statistics
from holdfast.sync import SyncVerbs
from holdfast.tasks.options import TaskOptions
from holdfast.tasks.policy_file.reloading import find
from holdfast.tasks.schedules import ScheduleOptions
from holdfast.tasks.settings import Settings, SettingsOptions
from holdfast.tasks.task import Task
from holdfast.values.duration import Duration
from holdfast.values.validation import typed
from holdfast.webhooks.verbs import Webhooks
from holdfast.wiring import database_url
from holdfast.worker.attempts import Middleware

if TYPE_CHECKING:
    from holdfast.health.judgement import Health, Thresholds
    from holdfast.metrics.metrics import Metrics

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast:
    """A set of tasks over one database.

    Declare tasks and what belongs to them with the methods; read and steer jobs through the namespaces (`app.jobs`,
    `app.dead_letters`, `app.queues`, …); `app.sync` has the same namespaces for code without an event loop.

    Args:
        url: The database; by default `HOLDFAST_DATABASE_URL`, else `sqlite:///holdfast.db`.
        retention: How long results, jobs and events are kept; by default for ever.
        policies: A file that is laid over what the code says about tasks; by default `HOLDFAST_POLICIES`, else ./holdfast.toml
            if it exists.
        clock: For tests.
        rng: For tests.
        store: For tests.
        calls: For tests.
        extensions: What other packages add, such as `holdfast.contrib.credits.Credits()`.
        settings: See `SettingsOptions`; each can also be set by `HOLDFAST_<NAME>`.
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
        extensions: Sequence[Extension] = (),
        **settings: Unpack[SettingsOptions],
    ) -> None:
        if retention is not None:
            typed("retention", retention, Retention, 'a Retention(results="7d", jobs="30d")')
        declared = Declarations(find(policies, os.environ), extensions)
        given = Given(clock=clock, rng=rng, store=store, calls=calls)
        self.runtime = Runtime(
            database_url(url), declared, Settings.read(settings, os.environ), retention, given
        )
        self.runtime.settings_in_code = frozenset(name for name in settings if settings.get(name) is not None)
        self.tasks = declared.tasks  #: by name
        self.jobs = Jobs(self.runtime)
        self.dead_letters = DeadLetters(self.runtime)
        self.queues = Queues(self.runtime)
        self.breakers = Breakers(self.runtime)
        self.schedules = Schedules(self.runtime)
        self.outbox = Outbox(self.runtime)
        self.webhooks = Webhooks(self.runtime)
        self.keys = Keys(self.runtime)
        self.operations = Operations(self.runtime)
        self.events = Events(self.runtime)
        self.policies = PolicyOverrides(self.runtime)
        self.external = ExternalJobs(self.runtime)
        self.stats = Statistics(self.runtime)
        if self.runtime.settings.tracing:
            from holdfast.tracing import instrument

            instrument(self)

    # -- opening and closing ----------------------------------------------------------------------------------------
    async def __aenter__(self) -> Holdfast:
        await self.runtime.engine()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that the running event loop has opened. The next call opens them again."""
        await self.runtime.close()

    async def migrate(self) -> list[str]:
        """Bring the schema of the database up to date, and return the names of the migrations that ran."""
        return await self.runtime.make_store().migrate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Open a transaction on a connection of the store; it commits on leaving the block.

        Use it for what must be stored together: `task.options(connection=…).enqueue(…)`, `app.outbox.publish(…,
        connection=…)` and rows of your own.
        """
        async with (await self.runtime.engine()).store.transaction() as connection:
            yield connection

    @property
    def extensions(self) -> Mapping[str, Extension]:
        """The extensions of the app by name: those that it declares, and those whose tables its database was found to have."""
        return MappingProxyType(self.runtime.extensions.by_name)

    @property
    def sync(self) -> SyncVerbs:
        """The namespaces for code without an event loop: `app.sync.jobs.retry(id)` is `await app.jobs.retry(id)`."""
        return SyncVerbs(self.runtime)

    # -- declaring --------------------------------------------------------------------------------------------------
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Make a function a task: `@app.task`, or `@app.task(queue="mail", retry=5)`; see `TaskOptions`."""

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            return self.runtime.declared.add_task(function, self.runtime, **options)

        return decorate(*function) if function else decorate

    @overload
    def schedule(
        self, when: When, /, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Task[P, R]], Task[P, R]]: ...

    @overload
    def schedule(self, task: Task[P, R], when: When, /, **options: Unpack[ScheduleOptions]) -> Task[P, R]: ...

    def schedule(self, *given: Any, **options: Any) -> Any:
        """Enqueue a task by the clock.

        Write `@app.schedule(Cron("0 7 * * mon-fri", zone="Europe/Berlin"))` above `@app.task`, or
        `app.schedule(task, Every("5m"))`. See `ScheduleOptions`.
        """
        if not 1 <= len(given) <= 2 or isinstance(given[-1], Task):
            raise UsageError("a schedule says when: @app.schedule(Every(…)), or app.schedule(task, Cron(…))")

        def keep(task: Any) -> Any:
            self.runtime.declared.add_schedule(task, given[-1], **options)
            return task

        return keep(given[0]) if len(given) == 2 else keep

    def topic(
        self,
        name: str,
        to: str | None = None,
        *,
        base: Duration = "1s",
        cap: Duration = "1m",
        max_tries: int | None = None,
        strict: bool = False,
        **target: Any,
    ) -> Topic:
        """Declare where messages of this name go: `app.topic("grading.request", to="amqp://…", exchange="grading")`.

        Args:
            name: The topic.
            to: amqp://, redis://, nats://, https://, memory://, or what a plug-in adds; by default `HOLDFAST_BROKER`.
            base: A message that was refused is tried again after this time, doubled with every try …
            cap: … up to this time.
            max_tries: Park a message after this many tries; by default it is tried for ever.
            strict: A parked message holds up those behind it that have its key.
            target: Options of the kind of target; see docs/how-to/publish-messages.md.
        """
        policy = TopicPolicy(base=base, cap=cap, max_tries=max_tries, strict=strict)
        return self.runtime.declared.add_topic(name, to or self.runtime.settings.broker, policy, target)

    def dependency(
        self,
        name: str,
        *,
        breaker: BreakerPolicy | None = BreakerPolicy(),  # noqa: B008 - a frozen value
        limiter: LimiterPolicy | None = LimiterPolicy(),  # noqa: B008
        budget: BudgetPolicy | None = BudgetPolicy(),  # noqa: B008
        probe: str | Probe | None = None,
    ) -> None:
        """Say how calls of a dependency are guarded. Tasks name it by `depends_on=`; None switches a mechanism off.

        *probe* is asked before calls are tried again after an outage: a URL (an answer below 500 is good), or an async
        function that returns whether the service is well. A bad answer, or none within 5 s, puts the trials off by 5 s. A good
        one lets them begin after one cooldown, also where `max_cooldown` would let them wait longer.
        """
        self.runtime.declared.add_dependency(name, breaker, limiter, budget, probe)

    def error_code(self, name: str, message: str, *, error_class: str = "unknown") -> None:
        """Declare an error code of this app: `app.error_code("GW_5XX", "The gateway is down.")`.

        Args:
            name: The code.
            message: What people see of a failure that has this code and no message of its own.
            error_class: "transient", "throttled" or "unknown" (retried), or "permanent".

        Raises `UsageError` when the code is one of the engine's, or is declared with another meaning.
        """
        self.runtime.declared.add_error_code(name, message, error_class)

    def queue(self, name: str, limits: Limits) -> None:
        """Limit a queue as a whole: `app.queue("mail", Limits(concurrency=5))`."""
        self.runtime.declared.add_queue(name, limits)

    def lifespan(self, make: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """Open resources for a worker process: an async generator with one `yield`. Handlers get them from `job.resources`."""
        self.runtime.declared.set_lifespan(make)
        return make

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every attempt: `async def m(job, call): …; return await call()`. The first one added is outermost."""
        self.runtime.declared.add_middleware(function)
        return function

    def on(self, *kinds: str) -> Callable[[Hook], Hook]:
        """Call a hook in the transaction of moves of these kinds. When the hook raises, none of the moves happens."""
        chosen = hook_kinds(kinds)

        def keep(hook: Hook) -> Hook:
            self.runtime.declared.add_hook(chosen, hook)
            return hook

        return keep

    # -- running ----------------------------------------------------------------------------------------------------
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
        """Run jobs until cancelled or stopped.

        Args:
            concurrency: How many jobs run at once; by default the setting.
            queues: Serve these queues only.
            maintenance: Also run maintenance: reclaim lost jobs, enforce deadlines, tick schedules.
            until_idle: Return when no job is left that could run.
            handle_signals: Stop on SIGTERM and SIGINT.
            relay: Also deliver messages, if the app declares topics.
        """
        await run_worker(
            self.runtime,
            concurrency=concurrency,
            queues=queues,
            maintenance=maintenance,
            until_idle=until_idle,
            handle_signals=handle_signals,
            relay=relay,
        )

    async def run_maintenance(self, *, handle_signals: bool = False) -> None:
        """Run maintenance and no jobs, until cancelled or stopped. Use it when workers run with `maintenance=False`."""
        await run_maintenance(self.runtime, handle_signals=handle_signals)

    # -- watching ---------------------------------------------------------------------------------------------------
    @property
    def metrics(self) -> Metrics:
        """The metrics of this process and of its jobs, for Prometheus. Counting begins at the first access."""
        return self.runtime.metrics

    async def health(self, thresholds: Thresholds | None = None) -> Health:
        """Return whether all is well, check by check. *thresholds* default to `HOLDFAST_HEALTH_…` in the environment."""
        from holdfast.health.inputs import read_health_inputs
        from holdfast.health.judgement import Health, Thresholds, judge_health

        inputs = await read_health_inputs(await self.runtime.engine(), self.runtime.declared.schedules)
        judged = judge_health(inputs, thresholds or Thresholds.read(os.environ))
        return Health((*judged.checks, *await self.runtime.extensions.health()))

"""What an app says before anything runs: its tasks, their schedules, topics and services, hooks; and the file laid over it."""

from __future__ import annotations

from abc import ABC
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast, overload

from holdfast.credits.verbs import Credits
from holdfast.domain.breaker import BreakerPolicy
from holdfast.domain.budget import BudgetPolicy
from holdfast.domain.classify import Rule
from holdfast.domain.codes import ErrorCode, declare
from holdfast.domain.duration import Duration
from holdfast.domain.external_task import AGAIN_AFTER, Encode
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.limiter import LimiterPolicy
from holdfast.domain.limits import Limits, whole_queue
from holdfast.domain.moves import Kind
from holdfast.domain.outbox import TopicPolicy, check_name
from holdfast.domain.policy import Retry
from holdfast.domain.schedule import Missed, Schedule, When
from holdfast.domain.suggest import suggest
from holdfast.domain.validation import a_function, typed, word
from holdfast.engine import schedules
from holdfast.engine.admission import Admission, Probe
from holdfast.engine.external_tasks import ExternalTasks
from holdfast.engine.policies.reloading import Reloader
from holdfast.engine.policies.values import Policies
from holdfast.engine.ports import Hook, Retention
from holdfast.engine.settings import Settings
from holdfast.engine.task_options import read_policy, task_name
from holdfast.engine.tasks import Check, Sender, Task
from holdfast.engine.transport import Topic
from holdfast.errors import UsageError
from holdfast.transports.targets import read_target
from holdfast.wiring import http_probe, make_external_task_store
from holdfast.worker.attempts import Middleware

P = ParamSpec("P")
R = TypeVar("R")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Declaring(ABC):
    """Mixed into `Holdfast`. *policies* is the file that is laid over what the code says."""

    settings: Settings
    credits: Credits

    def __init__(self, policies: Path | None) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.topics: dict[str, Topic] = {}
        self.codes: dict[str, ErrorCode] = {}  #: error codes of its own
        self._reloader = Reloader(policies)
        self.admission = Admission(lambda: self.policies)
        self.external_tasks = ExternalTasks(self.tasks, make_external_task_store)
        self._lifespan: Lifespan | None = None
        self._middleware: list[Middleware] = []
        self._hooks: list[tuple[frozenset[Kind], Hook]] = []

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: Retry | int | str | None = None,
        timeout: Duration | None = None,
        lease: Duration | None = None,
        depends_on: str | None = None,
        execute: str | None = None,
        max_crashes: int = 3,
        store_result: bool = True,
        deadline: Duration | None = None,
        dedupe: bool = False,
        dedupe_scope: str = "owner",
        dedupe_for: Duration | None = None,
        start_within: Duration | None = None,
        retention: Retention | None = None,
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
        http: bool = False,
        check: Check | None = None,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Make a function a task. *execute* is "async" (on the loop), "thread" or "process"; by default an
        `async def` runs on the loop, a plain `def` in a thread, and a plain `def` with a *timeout* in a process,
        because a thread cannot be stopped. "external": no worker runs it; others do, and tell of it (`begin`, `end`). They are
        told of its jobs by messages of *topic*, written by *encode*, and again when nobody has begun after *again_after*.

        *http* opens the task to keys of owners: they may enqueue, retry and redrive its jobs over HTTP. *check* is a function
        of the owner and the arguments by name; it is asked about every call, on every road, before it is stored, and
        raises `Forbidden` or `PayloadError` to refuse it."""

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            return self._add_task(function, **options)

        return decorate(*function) if function else decorate

    def _add_task(self, function: Callable[P, R], *, name: str | None = None, **options: Any) -> Task[P, R]:
        name = task_name(function, name)
        if name in self.tasks:
            raise UsageError(f"there is a task named {name!r} already; give this one another name=")
        task: Task[P, R] = Task(function, name, read_policy(name, function, options), cast(Sender, self))
        self._reloader.adopt(task)
        if task.policy.price:
            self._sell()
        if task.policy.topic is not None and self.external_tasks.hook not in self._hooks:
            self._hooks.append(self.external_tasks.hook)
        self.tasks[name] = task
        return task

    def _sell(self) -> None:
        """From now on the moves of jobs settle credits, before anybody else's hooks are told."""
        if self.credits.hook not in self._hooks:
            self._hooks.insert(0, self.credits.hook)

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
        if unknown := sorted(options.keys() - schedules.OPTIONS):
            raise UsageError(
                f"no schedule option {', '.join(unknown)}; {suggest(unknown[0], schedules.OPTIONS)}"
            )
        if not 1 <= len(given) <= 2 or isinstance(given[-1], Task):
            raise UsageError("a schedule says when: @app.schedule(Every(…)), or app.schedule(task, Cron(…))")

        def keep(task: Any) -> Any:
            if not isinstance(task, Task) or self.tasks.get(task.name) is not task:
                name = getattr(task, "__name__", repr(task))
                raise UsageError(f"{name:.60} is not a task of this app; put @app.schedule above @app.task")
            declared = schedules.declare(task, given[-1], **options)
            if declared.name in self.schedules:
                raise UsageError(
                    f"there is a schedule named {declared.name!r} already; give this one another name="
                )
            self.schedules[declared.name] = declared
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
        """Where messages of this name go: `app.topic("grading.request", to="amqp://…", exchange="grading")`.

        *to* is amqp://, redis://, nats://, https://, memory:// or what a plug-in brings; by default `HOLDFAST_BROKER`. A message that was refused
        is tried again after *base*, doubled each time up to *cap*, and parked after *max_tries* (None: never). *strict*: a
        parked message holds up those of its key behind it. What else can be said depends on the kind of target
        (docs/how-to/publish-messages.md).
        """
        check_name("topic", name)
        if name in self.topics:
            raise UsageError(f"there is a topic named {name!r} already")
        address = to or self.settings.broker
        if address is None:
            raise UsageError(f"topic {name} has no target: say to='amqp://…', or set HOLDFAST_BROKER")
        policy = TopicPolicy(base=base, cap=cap, max_tries=max_tries, strict=strict)
        found = Topic(name=name, to=address, policy=policy, target=read_target(name, address, target))
        self.topics[name] = found
        return found

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
        async function that answers whether all is well. A bad answer, and one that takes longer than 5 s, puts the trials off by
        5 s; a good one lets them begin after one cooldown, also where `max_cooldown` would have them wait longer.
        """
        kinds = {"breaker": BreakerPolicy, "limiter": LimiterPolicy, "budget": BudgetPolicy}
        for option, value in (("breaker", breaker), ("limiter", limiter), ("budget", budget)):
            if value is not None:
                typed(option, value, kinds[option], f"a {kinds[option].__name__}(…), or None for none")
        asked = http_probe(probe) if isinstance(probe, str) else probe
        policy = DependencyPolicy(breaker=breaker, limiter=limiter, budget=budget)
        if asked is not None:
            a_function("probe", asked, "a URL, or an async function")
            self.admission.probes[word("name", name)] = asked
        self.admission.dependencies[word("name", name)] = policy

    def error_code(self, name: str, message: str, *, error_class: str = "unknown") -> None:
        """Declare an error code of this app: `app.error_code("GW_5XX", "The gateway is down.")`.

        The message is what people see of a failure that has this code and no words of its own: a job that fails fast
        (`fail_code`), a `reject` without a message, a rule that answers a code, an external worker that reports one.

        Args:
            name: The code.
            message: One line for people.
            error_class: What a failure named by a rule is: "transient", "throttled", "unknown" (tried again) or "permanent".

        Raises:
            UsageError: The code is one of the engine's, or is declared with another meaning.
        """
        declare(
            self.codes, word("name", name), typed("message", message, str, "one line for people"), error_class
        )

    def queue(self, name: str, limits: Limits) -> None:
        """The limits of a queue as a whole."""
        found = typed("limits", limits, Limits, "a Limits(concurrency=…, rate=…)")
        self.admission.queues[word("name", name)] = whole_queue(found)

    def lifespan(self, make: Callable[[], AsyncIterator[Any]]) -> Callable[[], AsyncIterator[Any]]:
        """An async generator with one `yield`: resources of a worker process. Handlers find them as `job.resources`."""
        self._lifespan = asynccontextmanager(a_function("a lifespan", make, "an async generator function"))
        return make

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every attempt: `async def m(job, call): …; return await call()`. The first one added is outermost."""
        self._middleware.append(a_function("a middleware", function, "an async function (job, call)"))
        return function

    def on(self, *kinds: str) -> Callable[[Hook], Hook]:
        """A hook that runs in the transaction of the moves it names: raise, and none of them happened."""
        known = {kind.name: kind for kind in Kind}
        unknown = [str(kind)[:40] for kind in kinds if kind not in known]
        if unknown or not kinds:
            raise UsageError(
                f"no event {', '.join(unknown) or 'named'}; {suggest(''.join(unknown[:1]), list(known))}"
            )

        def keep(hook: Hook) -> Hook:
            a_function("a hook", hook, "a function")
            self._hooks.append((frozenset(known[kind] for kind in kinds), hook))
            return hook

        return keep

    # -- the file -------------------------------------------------------------------------------------------------------
    @property
    def policies(self) -> Policies:
        """What the policy file says, as it is in force now."""
        return self._reloader.policies

    def most_attempts(self, owner: str) -> int | None:
        """Return the attempts that a job of *owner* has at most; None where the policy file sets no bound."""
        policy = self._reloader.policies.owners.get(owner)
        return None if policy is None else policy.max_attempts

    def _check_policies(self) -> None:
        if self.tasks:  # an app without any only looks at the database
            self._reloader.check(self.tasks)
        for name, task in self.tasks.items():
            topic = task.policy.topic
            if topic is not None and topic not in self.topics:
                raise UsageError(
                    f"jobs of {name} are handed to {topic}, which is no topic here; declare it with app.topic({topic!r}, …)"
                )

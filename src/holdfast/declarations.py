"""What an app declares before anything runs: tasks, schedules, topics, services, hooks; and the policy file over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack

from holdfast.engine.admission import Admission, Probe
from holdfast.engine.ports import Hook
from holdfast.errors import UsageError
from holdfast.extension_set import ExtensionSet
from holdfast.extensions import Extension
from holdfast.jobs.codes import ErrorCode, declare
from holdfast.jobs.moves import Kind
from holdfast.jobs.schedule import Schedule, When
from holdfast.outbox.external_tasks import ExternalTasks
from holdfast.outbox.model import TopicPolicy, check_name
from holdfast.outbox.transport import Topic
from holdfast.outbox.transports.targets import read_target
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.guard import DependencyPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.limits import Limits, queue_limits
from holdfast.tasks import schedules
from holdfast.tasks.options import TaskOptions, read_policy, task_name
from holdfast.tasks.policy_file.reloading import Reloader
from holdfast.tasks.policy_file.values import Policies
from holdfast.tasks.schedules import ScheduleOptions
from holdfast.tasks.task import Sender, Task
from holdfast.values.suggest import suggest
from holdfast.values.validation import a_function, typed, word
from holdfast.wiring import http_probe, make_external_task_store
from holdfast.worker.attempts import Middleware

P = ParamSpec("P")
R = TypeVar("R")

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Declarations:
    """Everything that one app declares. *policy_file* is laid over what the code says about tasks."""

    def __init__(self, policy_file: Path | None, extensions: Sequence[Extension] = ()) -> None:
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.extensions = ExtensionSet(extensions, self.hooks)
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}
        self.topics: dict[str, Topic] = {}
        self.codes: dict[str, ErrorCode] = {}  #: error codes of the app
        self.reloader = Reloader(policy_file, self.extensions.task_options)
        self.admission = Admission(self.reloader)
        self.external_tasks = ExternalTasks(self.tasks, make_external_task_store)
        self.lifespan: Lifespan | None = None
        self.middleware: list[Middleware] = []

    @property
    def policies(self) -> Policies:
        """What the policy file says, as it is in force now."""
        return self.reloader.policies

    def most_attempts(self, owner: str) -> int | None:
        """Return the attempts that a job of *owner* has at most; None where the policy file sets no bound."""
        policy = self.policies.owners.get(owner)
        return None if policy is None else policy.max_attempts

    def add_task(
        self, function: Callable[P, R], sender: Sender, **options: Unpack[TaskOptions]
    ) -> Task[P, R]:
        """Make *function* a task of this app. Raises `UsageError` for options that are wrong or contradict each other."""
        name = task_name(function, options.pop("name", None))
        if name in self.tasks:
            raise UsageError(f"there is a task named {name!r} already; give this one another name=")
        task: Task[P, R] = Task(
            function, name, read_policy(name, function, options, self.extensions.task_options), sender
        )
        self.reloader.adopt(task)
        if task.policy.topic is not None and self.external_tasks.hook not in self.hooks:
            self.hooks.append(self.external_tasks.hook)
        self.tasks[name] = task
        return task

    def add_schedule(self, task: object, when: When, /, **options: Unpack[ScheduleOptions]) -> None:
        """Enqueue *task* by the clock. Raises `UsageError` when it is not a task of this app."""
        if not isinstance(task, Task) or self.tasks.get(task.name) is not task:
            name = getattr(task, "__name__", repr(task))
            raise UsageError(f"{name:.60} is not a task of this app; put @app.schedule above @app.task")
        declared = schedules.declare(task, when, **options)
        if declared.name in self.schedules:
            raise UsageError(
                f"there is a schedule named {declared.name!r} already; give this one another name="
            )
        self.schedules[declared.name] = declared

    def add_topic(self, name: str, to: str | None, policy: TopicPolicy, target: dict[str, Any]) -> Topic:
        """Add a topic whose messages go to the address *to*; *target* holds the options of that kind of target."""
        check_name("topic", name)
        if name in self.topics:
            raise UsageError(f"there is a topic named {name!r} already")
        if to is None:
            raise UsageError(f"topic {name} has no target: say to='amqp://…', or set HOLDFAST_BROKER")
        topic = Topic(name=name, to=to, policy=policy, target=read_target(name, to, target))
        self.topics[name] = topic
        return topic

    def add_dependency(
        self,
        name: str,
        breaker: BreakerPolicy | None,
        limiter: LimiterPolicy | None,
        budget: BudgetPolicy | None,
        probe: str | Probe | None,
    ) -> None:
        """Say how calls of a dependency are guarded."""
        kinds = {"breaker": BreakerPolicy, "limiter": LimiterPolicy, "budget": BudgetPolicy}
        for option, value in (("breaker", breaker), ("limiter", limiter), ("budget", budget)):
            if value is not None:
                typed(option, value, kinds[option], f"a {kinds[option].__name__}(…), or None for none")
        asked = http_probe(probe) if isinstance(probe, str) else probe
        if asked is not None:
            a_function("probe", asked, "a URL, or an async function")
            self.admission.probes[word("name", name)] = asked
        policy = DependencyPolicy(breaker=breaker, limiter=limiter, budget=budget)
        self.admission.dependencies[word("name", name)] = policy

    def add_error_code(self, name: str, message: str, error_class: str) -> None:
        """Add an error code. Raises `UsageError` when the code has another meaning already."""
        text = typed("message", message, str, "one line for people")
        declare(self.codes, word("name", name), text, error_class)

    def add_queue(self, name: str, limits: Limits) -> None:
        """Limit a queue as a whole."""
        found = typed("limits", limits, Limits, "a Limits(concurrency=…, rate=…)")
        self.admission.queues[word("name", name)] = queue_limits(found)

    def set_lifespan(self, make: Callable[[], AsyncIterator[Any]]) -> None:
        """Let *make* hold the resources of a worker process."""
        self.lifespan = asynccontextmanager(a_function("a lifespan", make, "an async generator function"))

    def add_middleware(self, function: Middleware) -> None:
        """Wrap every attempt in *function*; the first one added is outermost."""
        self.middleware.append(a_function("a middleware", function, "an async function (job, call)"))

    def add_hook(self, kinds: frozenset[Kind], hook: Hook) -> None:
        """Call *hook* in the transaction of moves of these *kinds*."""
        a_function("a hook", hook, "a function")
        self.hooks.append((kinds, hook))

    def check(self) -> None:
        """Raise `UsageError` for what contradicts itself: the policy file, and tasks whose topic is not declared."""
        if self.tasks:  # an app without tasks only reads the database
            self.reloader.check(self.tasks)
        for name, task in self.tasks.items():
            topic = task.policy.topic
            if topic is not None and topic not in self.topics:
                raise UsageError(
                    f"jobs of {name} are sent to the topic {topic}, which is not declared; declare it with app.topic({topic!r}, …)"
                )


def hook_kinds(kinds: Sequence[str]) -> frozenset[Kind]:
    """Return the kinds of events of these names. Raises `UsageError` for a name that is none, and for none at all."""
    known = {kind.name: kind for kind in Kind}
    unknown = [str(kind)[:40] for kind in kinds if kind not in known]
    if unknown or not kinds:
        raise UsageError(
            f"no event {', '.join(unknown) or 'named'}; {suggest(''.join(unknown[:1]), list(known))}"
        )
    return frozenset(known[kind] for kind in kinds)

"""A task: a decorated function, its policy, and the ways to enqueue a call of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)
from uuid import UUID

from holdfast.errors import UsageError
from holdfast.jobs.concurrency_keys import owner_key
from holdfast.jobs.external_task import AGAIN_AFTER, Encode
from holdfast.jobs.job import Enqueued, JobBatch, JobId, JobRow, JobSpec, Lane, NewJob
from holdfast.jobs.retention import Retention
from holdfast.resilience.classify import Rule
from holdfast.resilience.fairness import LEVELS
from holdfast.resilience.limits import Limits
from holdfast.resilience.policy import Retry
from holdfast.tasks import dedupe
from holdfast.tasks.payload import Signature, UnreadablePayload, encode
from holdfast.tasks.results import returned_by
from holdfast.values.duration import Duration
from holdfast.values.merge_patch import merge_patch
from holdfast.values.suggest import suggest
from holdfast.values.validation import moment, optional_span, whole, word

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

Executor = Literal["async", "thread", "process", "external"]
EXECUTORS: tuple[str, ...] = get_args(Executor)
#: What becomes of an attempt that runs too long although its worker is alive.
StuckAction = Literal["report", "retry"]
STUCK_ACTIONS: tuple[str, ...] = get_args(StuckAction)

#: A call for `enqueue_many`: its arguments by name in a mapping, by position in a tuple, or a single value as
#: the only one.
Call = Mapping[str, Any] | tuple[Any, ...] | Any

#: Checks a call before it is stored. It receives the owner and the arguments by name, as the handler would
#: receive them. To refuse the call it raises `Forbidden` (this owner may not) or `PayloadError` (no owner
#: may).
Check = Callable[[str | None, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of a task, with their defaults."""

    queue: str = "default"
    retry: Retry = field(default_factory=Retry)
    timeout: timedelta | None = None
    lease: timedelta | None = None
    depends_on: str | None = None
    execute: str = "async"
    max_crashes: int = 3
    store_result: bool = True
    deadline: timedelta | None = None
    dedupe: bool = False  #: calls with the same arguments are one job
    dedupe_scope: str = "owner"
    dedupe_for: timedelta | None = None
    start_within: timedelta | None = None
    retention: Retention | None = None  #: None means the app's
    stuck_after: timedelta | None = timedelta(minutes=30)
    stuck_action: str = "report"
    version: int = 1
    rules: tuple[Rule, ...] = ()
    limits: Limits | None = None
    cost: float = 1.0  #: how much one job counts against quotas of cost
    topic: str | None = None  #: the topic to which jobs of an external task are published
    encode: Encode | None = None  #: makes the body and headers of such a message
    #: when the message is published again if no external worker has begun the job
    again_after: timedelta = AGAIN_AFTER
    http: bool = False  #: keys of owners may enqueue, retry and redrive its jobs
    check: Check | None = None  #: called for every call before it is stored
    extra: Mapping[str, Any] = field(default_factory=dict)  #: options of extensions


class EnqueueOptions(TypedDict, total=False):
    """The options of one enqueue: `task.options(owner="alice", delay="5m").enqueue(…)`."""

    owner: str | None  #: the user, session or organization that the job belongs to
    priority: int | str  #: "high", "normal", "low", or a whole number; higher goes first
    queue: str | None
    shard: str | None  #: of the dependency that the task calls
    dedupe_key: str | None
    dedupe_for: Duration | None
    run_at: datetime | None
    delay: Duration | None
    deadline: Duration | datetime | None
    start_within: Duration | None
    max_attempts: int | None
    key: str | None  #: jobs of one key run one at a time, or as the task's limits say
    tags: Sequence[str]
    id: str | UUID | None  #: a UUID; a job whose id is known is not stored twice
    connection: Any  #: enqueue in the transaction that is open there


_UUID = re.compile("-".join(f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)))
OPTION_NAMES = frozenset(EnqueueOptions.__annotations__)
#: What other libraries call `enqueue`.
_ELSEWHERE = frozenset({"apply_async", "defer", "delay", "kiq", "send", "send_task"})
_NO_OPTIONS: EnqueueOptions = {}


class Handle(Generic[R_co]):
    """An enqueued job: its id, and methods to wait for its result and to read its row."""

    __slots__ = ("_sender", "_task", "duplicate", "id")

    def __init__(self, answer: Enqueued, task: Task[Any, Any], sender: Sender) -> None:
        self.id: JobId = answer.id
        #: an existing job with the same dedupe key was returned instead
        self.duplicate: bool = answer.duplicate
        self._task, self._sender = task, sender

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job is complete, and return its result.

        Raises:
            JobFailed: It ended without a result.
            ResultExpired: Retention has removed the result.
            TimeoutError: It has not ended after *timeout*.
        """
        return cast(R_co, await self._sender.result(self.id, timeout))

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """Do the same as `result`, in code without an event loop."""
        return cast(R_co, self._sender.result_sync(self.id, timeout))

    async def job(self) -> JobRow:
        """Return the job as it is now."""
        return await self._sender.job(self.id)

    def __repr__(self) -> str:
        return f"<Handle {self._task.name} {self.id}>"


class Handles(Sequence[Handle[R_co]]):
    """The handles of an `enqueue_many`, in its order; each is made when it is accessed."""

    def __init__(self, answers: Sequence[Enqueued], task: Task[Any, Any], sender: Sender) -> None:
        self._answers, self._task, self._sender = answers, task, sender

    def __len__(self) -> int:
        return len(self._answers)

    @overload
    def __getitem__(self, place: int) -> Handle[R_co]: ...

    @overload
    def __getitem__(self, place: slice) -> Handles[R_co]: ...

    def __getitem__(self, place: int | slice) -> Handle[R_co] | Handles[R_co]:
        if isinstance(place, slice):
            return Handles(self._answers[place], self._task, self._sender)
        return Handle(self._answers[place], self._task, self._sender)


class Sender(Protocol):
    """The methods of an app that its tasks and their handles use."""

    async def send(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]: ...
    def send_sync(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]: ...
    async def reject(self, job: NewJob, code: str, message: str | None) -> JobId: ...
    async def result(self, job_id: str, timeout: Duration | None) -> Any: ...
    def result_sync(self, job_id: str, timeout: Duration | None) -> Any: ...
    async def job(self, job_id: str) -> JobRow: ...
    def new_id(self) -> JobId: ...
    def current_trace(self) -> str | None: ...
    def most_attempts(self, owner: str) -> int | None: ...

    @property
    def payload_limit(self) -> int: ...


class Task(Generic[P, R_co]):
    """A decorated function. Calling it calls the function; only `enqueue` and its variants enqueue a job."""

    def __init__(self, function: Callable[P, R_co], name: str, policy: Policy, sender: Sender) -> None:
        self.function, self.name, self._sender = function, name, sender
        self.declared = policy  #: the policy in the code; `policy` is the one in force
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(function, name)
        self.lane = Lane(policy.queue, name, policy.depends_on or "")
        self.upgraders: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        self.adopt(policy)
        self.returns = returned_by(function)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function

    def adopt(self, policy: Policy) -> None:
        """Apply *policy* to jobs enqueued from now on, and to the handling of all failures."""
        self.policy = policy
        self.plain_spec = JobSpec(
            lane=self.lane,
            max_attempts=policy.retry.max_attempts,
            max_crashes=policy.max_crashes,
            deadline=policy.deadline,
            start_within=policy.start_within,
            timeout=policy.timeout,
            dedupe_for=policy.dedupe_for,
            version=policy.version,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    @overload
    async def enqueue(
        self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    async def enqueue(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Store a call of this task with these arguments, and return its handle after the commit.

        `options(…)` sets the owner, a delay and so on. Raises `PayloadError` for arguments that the task does
        not take.
        """
        return await Enqueuer(self, _NO_OPTIONS).enqueue(*args, **kwargs)

    @overload
    def enqueue_sync(
        self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    def enqueue_sync(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Do the same as `enqueue`, in code without an event loop."""
        return Enqueuer(self, _NO_OPTIONS).enqueue_sync(*args, **kwargs)

    @overload
    async def enqueue_many(self: Task[P, Coroutine[Any, Any, T]], calls: Iterable[Call]) -> Handles[T]: ...

    @overload
    async def enqueue_many(self, calls: Iterable[Call]) -> Handles[R_co]: ...

    async def enqueue_many(self, calls: Iterable[Call]) -> Handles[Any]:
        """Store many calls at once, all or none, and return their handles after the commit."""
        return await Enqueuer(self, _NO_OPTIONS).enqueue_many(calls)

    @overload
    def enqueue_many_sync(self: Task[P, Coroutine[Any, Any, T]], calls: Iterable[Call]) -> Handles[T]: ...

    @overload
    def enqueue_many_sync(self, calls: Iterable[Call]) -> Handles[R_co]: ...

    def enqueue_many_sync(self, calls: Iterable[Call]) -> Handles[Any]:
        """Do the same as `enqueue_many`, in code without an event loop."""
        return Enqueuer(self, _NO_OPTIONS).enqueue_many_sync(calls)

    def options(self, **options: Unpack[EnqueueOptions]) -> Enqueuer[P, R_co]:
        """Return this task with options for the jobs that are enqueued through it.

        Raises `UsageError` for an option that does not exist.
        """
        unknown = sorted(options.keys() - OPTION_NAMES)
        if unknown:
            raise UsageError(f"no option {', '.join(unknown)}; {suggest(unknown[0], OPTION_NAMES)}")
        return Enqueuer(self, options)

    async def reject(
        self,
        arguments: Mapping[str, Any],
        code: str,
        *,
        message: str | None = None,
        owner: str | None = None,
    ) -> JobId:
        """Record a refused input as a job that is failed from the start. Return the id of the job.

        It has no dead letter.

        Args:
            arguments: What the task would have been called with, by name. The task's check is not asked.
            code: The error code of the job.
            message: One line for people; by default that of the code.
            owner: Whose input it was.
        """
        [job] = self.options(owner=owner)._jobs([dict(arguments)], checked=False)
        return await self._sender.reject(job, code, message)

    def upgrades_from(self, version: int) -> Callable[[Callable[[dict[str, Any]], dict[str, Any]]], Any]:
        """Return a decorator for a function that converts arguments of payload *version* to the next one."""

        def register(upgrade: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
            self.upgraders[version] = upgrade
            return upgrade

        return register

    def upgrade(self, arguments: dict[str, Any], version: int) -> dict[str, Any]:
        """Convert *arguments* of payload *version* to the current version."""
        for step in range(version, self.policy.version):
            if step in self.upgraders:
                arguments = self.upgraders[step](arguments)
        return arguments

    def check(self, owner: str | None, payload: str) -> None:
        """Call the task's check for a call that is about to be stored. Raises what the check raises."""
        if self.policy.check is not None:
            self.policy.check(owner, self.signature.named(payload))

    def check_again(self, owner: str | None, arguments: Any) -> None:
        """Call the check for the stored *arguments* of a job that will run again: the rules may have changed.

        Raises:
            UnreadablePayload: The arguments do not fit the task any more.
        """
        if self.policy.check is not None:
            self.policy.check(owner, self._named_again(arguments))

    def _named_again(self, arguments: Any) -> dict[str, Any]:
        """Return stored arguments by name.

        Their version is unknown, so the newest one that fits is assumed.
        """
        for version in range(self.policy.version, 0, -1):
            with suppress(Exception):
                return self.signature.named(
                    encode(self.upgrade(arguments, version), what="the stored arguments")
                )
        raise UnreadablePayload(f"the stored arguments of {self.name}() do not fit its signature any more")

    def patch(self, arguments: Any, patch: Mapping[str, Any], limit: int) -> str:
        """Return the payload of a call: the stored *arguments* of a job, changed by a JSON merge patch.

        Their version is unknown, so the newest one that fits is assumed. If none fits, the patch has to make them fit.

        Raises:
            PayloadError: It is larger than *limit* bytes, or does not fit the task.
        """
        current = arguments
        for version in range(self.policy.version, 0, -1):
            with suppress(Exception):
                upgraded = self.upgrade(dict(arguments), version)
                self.signature.load(encode(upgraded, what="the stored arguments"))
                current = upgraded
                break
        return self.signature.check_payload(merge_patch(current, patch), limit)

    def option_hint(self, names: Iterable[str]) -> UsageError | None:
        """Return the error for the first of *names* that is no argument of the task, or None if all are."""
        unknown = [name for name in names if not self.signature.takes([name])]
        if not unknown:
            return None
        name = unknown[0]
        if name in OPTION_NAMES:
            hint = f"{name} is an option: {self.__name__}.options({name}=…).enqueue(…)"
        else:
            hint = suggest(name, [*self.signature.names, *OPTION_NAMES])
            near = hint.removeprefix("did you mean ").removesuffix("?")
            if near in OPTION_NAMES and near not in self.signature.names:
                hint += f" It is an option: {self.__name__}.options({near}=…).enqueue(…)"
            elif near == hint:
                hint = f"its arguments are: {', '.join(self.signature.names) or 'none'}"
        return UsageError(f"{self.name}() has no argument {name[:60]}; {hint}")

    if not TYPE_CHECKING:  # a type checker would accept any attribute name

        def __getattr__(self, name: str) -> Any:
            hint = "; use `await task.enqueue(…)` or `task.enqueue_sync(…)`" if name in _ELSEWHERE else ""
            raise AttributeError(f"a task has no {name}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Task {self.name} in queue {self.policy.queue}>"


class Enqueuer(Generic[P, R_co]):
    """A task with options for the jobs that it enqueues. The methods are those of `Task`."""

    def __init__(self, task: Task[P, R_co], options: EnqueueOptions) -> None:
        self._task, self._options = task, options

    @overload
    async def enqueue(
        self: Enqueuer[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    async def enqueue(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        job = self._job(kwargs, args)
        [answer] = await self._task._sender.send([job], self._options.get("connection"))
        return Handle(answer, self._task, self._task._sender)

    @overload
    def enqueue_sync(
        self: Enqueuer[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    def enqueue_sync(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        job = self._job(kwargs, args)
        [answer] = self._task._sender.send_sync([job], self._options.get("connection"))
        return Handle(answer, self._task, self._task._sender)

    @overload
    async def enqueue_many(
        self: Enqueuer[P, Coroutine[Any, Any, T]], calls: Iterable[Call]
    ) -> Handles[T]: ...

    @overload
    async def enqueue_many(self, calls: Iterable[Call]) -> Handles[R_co]: ...

    async def enqueue_many(self, calls: Iterable[Call]) -> Handles[Any]:
        sender, task = self._task._sender, self._task
        return Handles(await sender.send(self._jobs(calls), self._options.get("connection")), task, sender)

    @overload
    def enqueue_many_sync(self: Enqueuer[P, Coroutine[Any, Any, T]], calls: Iterable[Call]) -> Handles[T]: ...

    @overload
    def enqueue_many_sync(self, calls: Iterable[Call]) -> Handles[R_co]: ...

    def enqueue_many_sync(self, calls: Iterable[Call]) -> Handles[Any]:
        sender, task = self._task._sender, self._task
        return Handles(sender.send_sync(self._jobs(calls), self._options.get("connection")), task, sender)

    def _jobs(self, calls: Iterable[Call], *, checked: bool = True) -> Sequence[NewJob]:
        if self._options.get("id") is not None:
            raise UsageError("id= is for one job; leave it out, as enqueue_many creates the ids of its jobs")
        sender, spec = self._task._sender, self._spec()
        payloads = self._task.signature.dump_many(calls, sender.payload_limit)
        if checked and self._task.policy.check is not None:
            for payload in payloads:
                self._task.check(spec.owner, payload)
        new_id = sender.new_id
        if self._by_content:
            return [NewJob(new_id(), payload, self._with_content_key(spec, payload)) for payload in payloads]
        return JobBatch([new_id() for _ in payloads], payloads, spec)

    def _job(self, named: Mapping[str, Any], placed: tuple[Any, ...] = ()) -> NewJob:
        task, sender, job_id = self._task, self._task._sender, self._options.get("id")
        if named and (error := task.option_hint(named)) is not None:
            raise error
        payload = task.signature.dump(task.signature.bind(placed, named), sender.payload_limit)
        task.check(self._options.get("owner"), payload)
        spec = self._with_content_key(self._spec(), payload) if self._by_content else self._spec()
        return NewJob(checked_id(job_id) if job_id else sender.new_id(), payload, spec)

    @property
    def _by_content(self) -> bool:
        return self._task.policy.dedupe and self._options.get("dedupe_key") is None

    def _with_content_key(self, spec: JobSpec, payload: str) -> JobSpec:
        """Return *spec* with a dedupe key made from the arguments."""
        task = self._task
        return replace(
            spec, dedupe=dedupe.by_content(task.name, spec.owner, payload, task.policy.dedupe_scope)
        )

    def _lane(self) -> Lane:
        lane, options = self._task.lane, self._options
        return lane._replace(
            queue=lane.queue if options.get("queue") is None else word("queue", options.get("queue")),
            shard="" if options.get("shard") is None else word("shard", options.get("shard")),
            fair=options.get("owner") is not None,
        )

    def _key(self) -> dict[str, Any]:
        """Return the concurrency key of the job and its slots: those of `key=`, or of its owner."""
        task, limits = self._task, self._task.policy.limits
        key, owner = self._options.get("key"), self._options.get("owner")
        per_owner = None if limits is None else limits.per_owner.concurrency
        if key is not None:
            if per_owner is not None and owner is not None:
                raise UsageError(
                    f"{task.name} has a limit of {per_owner} at a time per owner, so its jobs cannot have a key= too;"
                    " drop one of them"
                )
            slots = None if limits is None else limits.per_key.concurrency
            return {"key": word("key", key), "key_slots": slots or 1}
        if per_owner is not None and owner is not None:
            return {"key": owner_key(task.name, owner), "key_slots": per_owner}
        return {}

    def _attempts(self) -> int:
        """Return the attempts that the options or the policy give, bounded by those of the owner."""
        given, owner = self._options.get("max_attempts"), self._options.get("owner")
        attempts = self._task.policy.retry.max_attempts
        if given is not None:
            attempts = whole("max_attempts", given, 1, 1000)
        most = None if owner is None else self._task._sender.most_attempts(owner)
        return attempts if most is None else min(attempts, most)

    def _spec(self) -> JobSpec:
        spec, trace = self._untraced(), self._task._sender.current_trace()
        return spec if trace is None else replace(spec, trace=trace)

    def _untraced(self) -> JobSpec:
        task, options, policy = self._task, self._options, self._task.policy
        if not options:
            return task.plain_spec
        if options.get("run_at") is not None and options.get("delay") is not None:
            raise UsageError("run_at and delay both set when it may start; drop one of them")
        deadline = policy.deadline if options.get("deadline") is None else options.get("deadline")
        at = moment("deadline", deadline) if isinstance(deadline, datetime) else None
        return replace(
            task.plain_spec,
            lane=self._lane(),
            owner=None if options.get("owner") is None else word("owner", options.get("owner")),
            priority=checked_priority(options.get("priority", 0)),
            max_attempts=self._attempts(),
            delay=optional_span("delay", options.get("delay")),
            run_at=None if options.get("run_at") is None else moment("run_at", options.get("run_at")),
            deadline=None if isinstance(deadline, datetime) else optional_span("deadline", deadline),
            deadline_at=at,
            start_within=optional_span("start_within", options.get("start_within")) or policy.start_within,
            **self._key(),
            dedupe=dedupe.by_key(
                task.name, options.get("owner"), options.get("dedupe_key"), policy.dedupe_scope
            ),
            dedupe_for=optional_span("dedupe_for", options.get("dedupe_for")) or policy.dedupe_for,
            tags=checked_tags(options.get("tags", ())),
        )


def checked_priority(value: Any) -> int:
    """Return a priority as a number. *value* is a number or the name of a level."""
    if isinstance(value, str):
        if value not in LEVELS:
            raise UsageError(
                f"priority is {value[:40]!r}; it is one of {', '.join(LEVELS)}, or a whole number"
            )
        return LEVELS[value]
    return whole("priority", value, -1000, 1000)


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Return the tags as a tuple. Raise `UsageError` unless they are a list of texts."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UsageError(f"tags is {tags!r:.60}; it is a list of texts, e.g. tags=[{str(tags)[:20]!r}]")
    return tuple(word("tags", tag) for tag in tags)


def checked_id(job_id: object) -> JobId:
    """Return an id that a caller chose, as text. Raise `UsageError` unless it is a UUID."""
    text = str(job_id).lower()
    if not _UUID.fullmatch(text):
        raise UsageError(f"id is {job_id!r:.60}; it must be a UUID, best of version 7")
    return JobId(text)

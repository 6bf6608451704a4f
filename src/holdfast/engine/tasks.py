"""A task: a decorated function, its policy, and the ways to enqueue a call of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast.domain.classify import Rule
from holdfast.domain.concurrency_keys import owner_key
from holdfast.domain.duration import Duration
from holdfast.domain.external_task import AGAIN_AFTER, Encode
from holdfast.domain.fairness import LEVELS
from holdfast.domain.job import Enqueued, JobBatch, JobId, JobRow, JobSpec, Lane, NewJob
from holdfast.domain.limits import Limits
from holdfast.domain.policy import Retry
from holdfast.domain.suggest import suggest
from holdfast.domain.validation import moment, optional_span, whole, word
from holdfast.engine import dedupe
from holdfast.engine.payload import Signature, UnreadablePayload, encode
from holdfast.engine.ports import Retention
from holdfast.engine.results import returned_by
from holdfast.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

EXECUTORS = ("async", "thread", "process", "external")
#: What becomes of an attempt that runs on for too long while its worker lives.
STUCK_ACTIONS = ("report", "retry")

#: A call for `enqueue_many`: its arguments by name, or by place as a tuple; a lone value is a call with one argument.
Call = Mapping[str, Any] | tuple[Any, ...] | Any

#: Decides about a call before it is stored: it is given the owner and the arguments by name, as the handler would see them.
#: To refuse, it raises `Forbidden` (this owner may not) or `PayloadError` (no owner may).
Check = Callable[[str | None, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything about a task that is not its code."""

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
    retention: Retention | None = None  #: None: the app's
    stuck_after: timedelta | None = timedelta(minutes=30)
    stuck_action: str = "report"
    version: int = 1
    rules: tuple[Rule, ...] = ()
    limits: Limits | None = None
    cost: float = 1.0  #: what one job counts in quotas of cost
    price: int = 0  #: the credits that one job costs
    topic: str | None = None  #: where those who execute it outside are told of its jobs …
    encode: Encode | None = None  #: … in these words
    again_after: timedelta = AGAIN_AFTER  #: … and again, while nobody has begun
    http: bool = False  #: keys of owners may enqueue, retry and redrive its jobs
    check: Check | None = None  #: asked about every call before it is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one enqueue may say about its job."""

    owner: str | None = None
    priority: int | str = 0
    queue: str | None = None
    shard: str | None = None
    dedupe_key: str | None = None
    dedupe_for: Duration | None = None
    run_at: datetime | None = None
    delay: Duration | None = None
    deadline: Duration | datetime | None = None
    start_within: Duration | None = None
    max_attempts: int | None = None
    key: str | None = None
    tags: Sequence[str] = ()
    id: str | None = None
    connection: Any = None


_UUID = re.compile("-".join(f"[0-9a-f]{{{digits}}}" for digits in (8, 4, 4, 4, 12)))
OPTION_NAMES = frozenset(Options.__dataclass_fields__)
#: What other libraries call `enqueue`.
_ELSEWHERE = frozenset({"apply_async", "defer", "delay", "kiq", "send", "send_task"})
_NO_OPTIONS = Options()


class Handle(Generic[R_co]):
    """A job that was enqueued: its id, and the way to its end."""

    __slots__ = ("_sender", "_task", "duplicate", "id")

    def __init__(self, answer: Enqueued, task: Task[Any, Any], sender: Sender) -> None:
        self.id: JobId = answer.id
        self.duplicate: bool = answer.duplicate  #: a twin with the same dedupe key stands in for this call
        self._task, self._sender = task, sender

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and give the result. `JobFailed` when there is none, `ResultExpired` when it was removed,
        `TimeoutError` when time is up."""
        return cast(R_co, await self._sender.result(self.id, timeout))

    async def job(self) -> JobRow:
        """The job's row as it is now."""
        return await self._sender.job(self.id)

    def __repr__(self) -> str:
        return f"<Handle {self._task.name} {self.id}>"


class Handles(Sequence[Handle[Any]]):
    """The handles of an `enqueue_many`, in its order; made as they are asked for."""

    def __init__(self, answers: Sequence[Enqueued], task: Task[Any, Any], sender: Sender) -> None:
        self._answers, self._task, self._sender = answers, task, sender

    def __len__(self) -> int:
        return len(self._answers)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Handles(self._answers[place], self._task, self._sender)
        return Handle(self._answers[place], self._task, self._sender)


class Sender(Protocol):
    """What a task needs of its app."""

    async def send(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]: ...
    def send_sync(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]: ...
    async def result(self, job_id: str, timeout: Duration | None) -> Any: ...
    async def job(self, job_id: str) -> JobRow: ...
    def new_id(self) -> JobId: ...
    def current_trace(self) -> str | None: ...
    def most_attempts(self, owner: str) -> int | None: ...

    payload_limit: int


class Task(Generic[P, R_co]):
    """A kind of job. Calling it calls the function; only `enqueue` enqueues."""

    def __init__(self, function: Callable[P, R_co], name: str, policy: Policy, sender: Sender) -> None:
        self.function, self.name, self._sender = function, name, sender
        self.declared = policy  #: as the code says it; `policy` is what is in force
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
        """Let *policy* be in force: for jobs enqueued from now on, and for the judgement over all that fail."""
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
        """Store a call; answered after it is durable. Options (`owner=`, `delay=`, …) may be mixed in as keywords
        where the function has no argument of that name; `options(…)` says the same to the type checker."""
        options, rest = self._split(kwargs)
        return await Enqueuer(self, options).enqueue(*args, **rest)

    @overload
    def enqueue_sync(
        self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    def enqueue_sync(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        """`enqueue` for code without an event loop."""
        options, rest = self._split(kwargs)
        return Enqueuer(self, options).enqueue_sync(*args, **rest)

    async def enqueue_many(self, calls: Iterable[Call], **options: Any) -> Handles:
        """Store many calls at once, all or none."""
        return await Enqueuer(self, _options(options)).enqueue_many(calls)

    def enqueue_many_sync(self, calls: Iterable[Call], **options: Any) -> Handles:
        return Enqueuer(self, _options(options)).enqueue_many_sync(calls)

    def options(self, **options: Any) -> Enqueuer[P, R_co]:
        """The same task with options for the jobs that are enqueued through it."""
        return Enqueuer(self, _options(options))

    def upgrades_from(self, version: int) -> Callable[[Callable[[dict[str, Any]], dict[str, Any]]], Any]:
        """Register the step that turns arguments of payload *version* into those of the next one."""

        def keep(upgrade: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
            self.upgraders[version] = upgrade
            return upgrade

        return keep

    def upgrade(self, arguments: dict[str, Any], version: int) -> dict[str, Any]:
        """Return *arguments* of payload *version* as those of the version in force."""
        for step in range(version, self.policy.version):
            if step in self.upgraders:
                arguments = self.upgraders[step](arguments)
        return arguments

    def check(self, owner: str | None, payload: str) -> None:
        """Ask the task's check about a call that is to be stored; raise what it raises."""
        if self.policy.check is not None:
            self.policy.check(owner, self.signature.named(payload))

    def check_again(self, owner: str | None, arguments: Any) -> None:
        """Ask the check about the stored *arguments* of a job that is to run again: rules may have changed since."""
        if self.policy.check is not None:
            self.policy.check(owner, self._named_again(arguments))

    def _named_again(self, arguments: Any) -> dict[str, Any]:
        """Rows do not tell their version: the newest one that fits is taken."""
        for version in range(self.policy.version, 0, -1):
            with suppress(Exception):
                return self.signature.named(
                    encode(self.upgrade(arguments, version), what="the stored arguments")
                )
        raise UnreadablePayload(f"the stored arguments of {self.name}() do not fit its signature any more")

    def _split(self, kwargs: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
        if not kwargs:
            return _NO_OPTIONS, {}
        names = self.signature.names
        chosen = {name: value for name, value in kwargs.items() if name in OPTION_NAMES and name not in names}
        rest = {name: value for name, value in kwargs.items() if name not in chosen}
        if not self.signature.takes(rest):
            raise self._unknown(next(name for name in rest if not self.signature.takes([name])))
        return Options(**chosen) if chosen else _NO_OPTIONS, rest

    def _unknown(self, name: str) -> UsageError:
        """Return the error for a keyword that is neither an argument nor an option."""
        likely = suggest(name, [*self.signature.names, *OPTION_NAMES])
        if not likely.startswith("did you mean"):
            arguments = ", ".join(self.signature.names) or "none"
            likely = f"its arguments are: {arguments}; the options are: {', '.join(sorted(OPTION_NAMES))}"
        return UsageError(
            f"{self.name}() has no argument {name[:60]}, and enqueue has no such option; {likely}"
        )

    if not TYPE_CHECKING:  # a checker would take it for leave to use any name

        def __getattr__(self, name: str) -> Any:
            hint = "; use `await task.enqueue(…)` or `task.enqueue_sync(…)`" if name in _ELSEWHERE else ""
            raise AttributeError(f"a task has no {name}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Task {self.name} in queue {self.policy.queue}>"


def _options(given: Mapping[str, Any]) -> Options:
    unknown = sorted(given.keys() - OPTION_NAMES)
    if unknown:
        raise UsageError(f"no option {', '.join(unknown)}; {suggest(unknown[0], OPTION_NAMES)}")
    return Options(**given) if given else _NO_OPTIONS


class Enqueuer(Generic[P, R_co]):
    """A task with the options for its next jobs."""

    def __init__(self, task: Task[P, R_co], options: Options) -> None:
        self._task, self._options = task, options

    @overload
    async def enqueue(
        self: Enqueuer[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    async def enqueue(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        job = self._job(kwargs, args)
        [answer] = await self._task._sender.send([job], self._options.connection)
        return Handle(answer, self._task, self._task._sender)

    @overload
    def enqueue_sync(
        self: Enqueuer[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]: ...

    @overload
    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]: ...

    def enqueue_sync(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        job = self._job(kwargs, args)
        [answer] = self._task._sender.send_sync([job], self._options.connection)
        return Handle(answer, self._task, self._task._sender)

    async def enqueue_many(self, calls: Iterable[Call]) -> Handles:
        sender, task = self._task._sender, self._task
        return Handles(await sender.send(self._jobs(calls), self._options.connection), task, sender)

    def enqueue_many_sync(self, calls: Iterable[Call]) -> Handles:
        sender, task = self._task._sender, self._task
        return Handles(sender.send_sync(self._jobs(calls), self._options.connection), task, sender)

    def _jobs(self, calls: Iterable[Call], *, checked: bool = True) -> Sequence[NewJob]:
        if self._options.id is not None:
            raise UsageError("an id names one job; enqueue_many makes those of its jobs by itself")
        sender, spec = self._task._sender, self._spec()
        payloads = self._task.signature.dump_many(calls, sender.payload_limit)
        if checked and self._task.policy.check is not None:
            for payload in payloads:
                self._task.check(spec.owner, payload)
        new_id = sender.new_id
        if self._by_content:
            return [NewJob(new_id(), payload, self._compared(spec, payload)) for payload in payloads]
        return JobBatch([new_id() for _ in payloads], payloads, spec)

    def _job(self, named: Mapping[str, Any], placed: tuple[Any, ...] = ()) -> NewJob:
        task, sender, job_id = self._task, self._task._sender, self._options.id
        payload = task.signature.dump(task.signature.bind(placed, named), sender.payload_limit)
        task.check(self._options.owner, payload)
        spec = self._compared(self._spec(), payload) if self._by_content else self._spec()
        return NewJob(checked_id(job_id) if job_id else sender.new_id(), payload, spec)

    @property
    def _by_content(self) -> bool:
        return self._task.policy.dedupe and self._options.dedupe_key is None

    def _compared(self, spec: JobSpec, payload: str) -> JobSpec:
        """So that a call with the same arguments is taken for its twin."""
        task = self._task
        return replace(
            spec, dedupe=dedupe.by_content(task.name, spec.owner, payload, task.policy.dedupe_scope)
        )

    def _lane(self) -> Lane:
        lane, options = self._task.lane, self._options
        return lane._replace(
            queue=lane.queue if options.queue is None else word("queue", options.queue),
            shard="" if options.shard is None else word("shard", options.shard),
            fair=options.owner is not None,
        )

    def _key(self) -> dict[str, Any]:
        """Return the jobs with which it shares a concurrency limit: those of its key, or of its owner."""
        task, options, limits = self._task, self._options, self._task.policy.limits
        per_owner = None if limits is None else limits.per_owner.concurrency
        if options.key is not None:
            if per_owner is not None and options.owner is not None:
                raise UsageError(
                    f"{task.name} has a limit of {per_owner} at a time per owner, so its jobs cannot have a key= too;"
                    " drop one of them"
                )
            slots = None if limits is None else limits.per_key.concurrency
            return {"key": word("key", options.key), "key_slots": slots or 1}
        if per_owner is not None and options.owner is not None:
            return {"key": owner_key(task.name, options.owner), "key_slots": per_owner}
        return {}

    def _attempts(self) -> int:
        """Return the attempts that the options or the policy give, bounded by those of the owner."""
        given, owner = self._options.max_attempts, self._options.owner
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
        if options is _NO_OPTIONS:
            return task.plain_spec
        if options.run_at is not None and options.delay is not None:
            raise UsageError("run_at and delay both say when it may start; drop one of them")
        deadline = options.deadline if options.deadline is not None else policy.deadline
        at = moment("deadline", deadline) if isinstance(deadline, datetime) else None
        return replace(
            task.plain_spec,
            lane=self._lane(),
            owner=None if options.owner is None else word("owner", options.owner),
            priority=checked_priority(options.priority),
            max_attempts=self._attempts(),
            delay=optional_span("delay", options.delay),
            run_at=None if options.run_at is None else moment("run_at", options.run_at),
            deadline=None if isinstance(deadline, datetime) else optional_span("deadline", deadline),
            deadline_at=at,
            start_within=optional_span("start_within", options.start_within) or policy.start_within,
            **self._key(),
            dedupe=dedupe.by_key(task.name, options.owner, options.dedupe_key, policy.dedupe_scope),
            dedupe_for=optional_span("dedupe_for", options.dedupe_for) or policy.dedupe_for,
            tags=checked_tags(options.tags),
        )


def checked_priority(value: Any) -> int:
    """A number, or the name of a level."""
    if isinstance(value, str):
        if value not in LEVELS:
            raise UsageError(
                f"priority is {value[:40]!r}; it is one of {', '.join(LEVELS)}, or a whole number"
            )
        return LEVELS[value]
    return whole("priority", value, -1000, 1000)


def checked_tags(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UsageError(f"tags is {tags!r:.60}; it is a list of texts, e.g. tags=[{str(tags)[:20]!r}]")
    return tuple(word("tags", tag) for tag in tags)


def checked_id(job_id: object) -> JobId:
    """An id that the caller made: a UUID, as such or as a text, so that it is the same kind of name as all others."""
    text = str(job_id).lower()
    if not _UUID.fullmatch(text):
        raise UsageError(f"id is {job_id!r:.60}; it must be a UUID, best of version 7")
    return JobId(text)

"""The options of `@app.task(…)`. Each is checked where it is written, not hours later in a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypedDict

from holdfast.errors import UsageError
from holdfast.jobs.external_task import Encode
from holdfast.jobs.internal import PREFIX, is_internal
from holdfast.jobs.retention import Retention
from holdfast.resilience.classify import Rule
from holdfast.resilience.limits import Limits
from holdfast.resilience.policy import Retry, preset
from holdfast.tasks.dedupe import SCOPES, DedupeScope
from holdfast.tasks.task import EXECUTORS, STUCK_ACTIONS, Check, Executor, Policy, StuckAction
from holdfast.values.duration import Duration, duration
from holdfast.values.suggest import suggest
from holdfast.values.validation import a_function, number, optional_span, span, typed, whole, word

#: Checks the value of an option: of its name and the value it returns the value to use, or raises `UsageError`.
Reader = Callable[[str, Any], Any]


class TaskOptions(TypedDict, total=False):
    """The options of `@app.task(…)`."""

    name: str | None  #: stored with the jobs; by default the function's name
    queue: str
    retry: Retry | int | str | None  #: a policy, how many attempts in all, or the name of a preset
    timeout: Duration | None  #: of one attempt
    lease: Duration | None  #: how long a silent worker keeps the job
    depends_on: str | None  #: the dependency that the task calls
    #: "async" (on the loop), "thread", "process" or "external" (other systems run it). By default an `async
    #: def` runs on the loop, a plain `def` in a thread, and a plain `def` with a *timeout* in a process,
    #: because a thread cannot be stopped.
    execute: Executor | None
    max_crashes: int  #: crashes in a row after which the job is a dead letter
    store_result: bool
    deadline: Duration | None  #: from enqueue to the end
    dedupe: bool  #: calls with the same arguments are one job
    dedupe_scope: DedupeScope
    dedupe_for: Duration | None
    start_within: Duration | None  #: fail a job that has not started by then
    retention: Retention | None  #: by default the app's
    stuck_after: Duration | None  #: an attempt that runs longer is stuck
    stuck_action: StuckAction
    version: int  #: of the arguments; see `Task.upgrades_from`
    rules: Sequence[Rule]  #: functions from an exception to an error code
    limits: Limits | None
    cost: float  #: what one job counts in quotas of cost
    topic: str | None  #: of an external task: the topic of the messages that carry its jobs
    encode: Encode | None  #: … what writes them
    again_after: Duration  #: … when a message is sent again because no executor has begun
    http: bool  #: keys of owners may enqueue, retry and redrive its jobs
    #: A function of the owner and the arguments by name. It is asked about every call before it is stored,
    #: and raises `Forbidden` or `PayloadError` to refuse it.
    check: Check | None
    extra: Mapping[str, Any]  #: options of the app's extensions


def task_name(handler: object, given: object) -> str:
    """Return the name of the task: *given*, or else the name of *handler*.

    Raises:
        UsageError: *handler* cannot be a task, or the name is not allowed.
    """
    if not callable(handler):
        raise UsageError(
            f"{handler!r:.60} is not a function; write @app.task above one, with options by keyword: @app.task(name=…)"
        )
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise UsageError(
            f"{getattr(handler, '__qualname__', handler)} yields; a task returns its result, e.g. as a list"
        )
    if isinstance(handler, type):
        raise UsageError(
            f"{handler.__qualname__} is a class; a task is a function, so write one that uses it"
        )
    if isinstance(handler, staticmethod) or _is_method(handler):
        raise UsageError(
            f"{getattr(handler, '__qualname__', handler)!s:.60} is a method, and a worker has no object to call it on;"
            " a task is a function: write it at the top of the module"
        )
    name = getattr(handler, "__name__", None) if given is None else given
    if name is None:
        raise UsageError(f"{handler!r:.60} has no name; give its task one: name=…")
    if is_internal(word("name", name)):
        raise UsageError(
            f"{name!r:.60}: names that begin with {PREFIX!r} are the engine's own; choose another"
        )
    return str(name)


def _is_method(handler: Any) -> bool:
    """Return whether *handler* is an unbound method.

    One that is bound to its object works like a function.
    """
    qualifier = getattr(handler, "__qualname__", "").rpartition(".")[0]
    if not inspect.isfunction(handler) or not qualifier or qualifier.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(handler).parameters), None) in ("self", "cls")


def _has_address(handler: Any) -> bool:
    """Return whether another process can import *handler* by name. A lambda or nested function cannot be."""
    qualifier = getattr(handler, "__qualname__", "")
    return inspect.isfunction(handler) and all(part.isidentifier() for part in qualifier.split("."))


def read_policy(
    name: str,
    handler: Callable[..., Any],
    options: Mapping[str, Any],
    extension_options: Mapping[str, Reader] = {},
) -> Policy:
    """Return the policy of a task from its checked *options*. Missing ones have the defaults of `Policy`.

    *extension_options* are the options that `extra` may have, each with its reader.

    Raises:
        UsageError: An option is unknown, is not valid, or contradicts another.
    """
    known = Policy.__dataclass_fields__
    if unknown := sorted(options.keys() - known):
        hint = suggest(unknown[0], ["name", *known])
        if unknown[0] in extension_options:
            hint = f"it is an option of an extension: extra={{{unknown[0]!r}: …}}"
        raise UsageError(f"no task option {', '.join(unknown)}; {hint}")
    is_async = inspect.iscoroutinefunction(handler)
    values = {name: OPTIONS[name].read(name, value) for name, value in options.items() if name in OPTIONS}
    if "extra" in options:
        values["extra"] = _extra(options["extra"], extension_options)
    if values.get("execute") is None:
        values["execute"] = "async" if is_async else "process" if values.get("timeout") else "thread"
    policy = Policy(**values)
    if policy.execute == "async" and not is_async:
        raise UsageError(f"{name} is a plain function; it runs with execute='thread' or 'process'")
    if policy.execute == "thread" and is_async:
        raise UsageError(
            f"{name} is an async function, which runs on the loop; leave out execute=, or write it as a plain def"
        )
    if policy.execute == "process" and not _has_address(handler):
        why = "" if options.get("execute") else ", as a plain def with a timeout does"
        raise UsageError(
            f"{name} runs in a process{why}, so it must be a function at the top of a module; move it there"
            + ("" if is_async else ", or run it with execute='thread'")
        )
    if policy.topic is None and policy.encode is not None:
        raise UsageError(f"{name} has encode= but no topic=; add topic=, where its messages go")
    if policy.topic is not None and policy.execute != "external":
        raise UsageError(
            f'{name} has a topic, so external workers run it; declare it with execute="external"'
        )
    return policy


def _extra(given: Any, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Return the checked options of extensions."""
    if not isinstance(given, Mapping):
        raise UsageError(f"extra is {given!r:.60}; it is a dict of the options of extensions")
    values = {}
    for option, value in given.items():
        if option not in readers:
            hint = suggest(option, readers) if readers else "declare the extension: Holdfast(extensions=[…])"
            raise UsageError(f"extra has {option!r:.60}, which no extension of the app knows; {hint}")
        values[option] = readers[option](option, value)
    return values


def _retry(option: str, value: Any) -> Retry:
    if value is None:
        return Retry()
    if isinstance(value, int) and not isinstance(value, bool):
        return Retry(value)
    if isinstance(value, str):
        try:
            return preset(value)
        except UsageError as error:
            raise UsageError(
                f"{option}: {error}; or write a Retry(…), or how many attempts there are in all"
            ) from None
    return typed(
        option, value, Retry, "a Retry(…), how many attempts there are in all, or the name of a preset"
    )


def _span_or_none(option: str, value: Any) -> timedelta | None:
    chosen = optional_span(option, value)
    if chosen is not None and not chosen:
        raise UsageError(f"{option} is 0; write a longer time, or None for none")
    return chosen


def span_or_false(_option: str, value: Any) -> timedelta | None:
    """Return a duration of a policy file, or None for `false`, which removes the value of the code or the queue."""
    if value is False:
        return None
    chosen = duration(value)
    if not chosen:
        raise UsageError("it is 0; write a longer time, or false for none")
    return chosen


def checked_retention(option: str, value: Any) -> Retention:
    """Return the retention of one task. Raise `UsageError` if it sets events, which all tasks share."""
    retention = typed(option, value, Retention, 'a Retention(results="7d", jobs="30d")')
    if retention.events is not None:
        raise UsageError(f"{option} sets events, which all tasks share; set it on the app")
    return retention


def _one_of(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def read(option: str, value: Any) -> str:
        if value not in choices:
            raise UsageError(f"{option} is {value!r:.60}; it is one of {', '.join(choices)}")
        return str(value)

    return read


def _rules(option: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise UsageError(f"{option} is {value!r:.60}; it is a list of functions")
    return tuple(
        a_function(option, rule, "a list of functions, each from an exception to a code") for rule in value
    )


def _check(option: str, value: Any) -> Any:
    what = "a function (owner, args) that raises Forbidden or PayloadError to refuse a call"
    if inspect.iscoroutinefunction(a_function(option, value, what)):
        raise UsageError(
            f"{option} is an async function; a check is a plain def, so that sync code can call it too"
        )
    return value


def _or_none(read: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda option, value: None if value is None else read(option, value)


class Option(NamedTuple):
    """How an option of a task is read. A reader takes the option's name for messages, and the value."""

    read: Reader  #: reads the value in the code
    read_file: Reader | None = None  #: reads it in a policy file; None: it is no plain key there
    within_deadline: bool = False  #: a policy file may not set it to a longer time than the deadline


def _in_both(read: Callable[[str, Any], Any]) -> Option:
    """Return an option that has the same values in the code and in a policy file."""
    return Option(read, read)


#: The options of `TaskOptions` by name, but for the name of the task.
OPTIONS: Mapping[str, Option] = {
    "queue": Option(word),
    "retry": Option(_retry),
    "timeout": Option(_span_or_none, span_or_false, within_deadline=True),
    "lease": Option(_span_or_none),
    "depends_on": Option(_or_none(word)),
    "execute": Option(_or_none(_one_of(EXECUTORS))),
    "max_crashes": Option(lambda option, value: whole(option, value, 1, 1000)),
    "store_result": Option(lambda option, value: typed(option, value, bool, "True or False")),
    "deadline": Option(_span_or_none, span_or_false),
    "dedupe": Option(lambda option, value: typed(option, value, bool, "True or False")),
    "dedupe_scope": Option(_one_of(SCOPES)),
    "dedupe_for": Option(optional_span),
    "start_within": Option(_span_or_none, span_or_false, within_deadline=True),
    "retention": Option(_or_none(checked_retention)),
    "stuck_after": Option(_span_or_none, span_or_false),
    "stuck_action": _in_both(_one_of(STUCK_ACTIONS)),
    "version": Option(lambda option, value: whole(option, value, 1, 1_000_000)),
    "rules": Option(_rules),
    "limits": Option(
        _or_none(lambda option, value: typed(option, value, Limits, "a Limits(concurrency=…, rate=…)"))
    ),
    "cost": _in_both(lambda option, value: number(option, value, 0, 1e9)),
    "topic": Option(_or_none(word)),
    "encode": Option(
        _or_none(
            lambda option, value: a_function(
                option, value, "a function from an external task to a body and its headers"
            )
        )
    ),
    "http": Option(lambda option, value: typed(option, value, bool, "True or False")),
    "check": Option(_or_none(_check)),
    "again_after": Option(
        lambda option, value: span(option, value, timedelta(milliseconds=100), timedelta(days=30))
    ),
}

"""What `@app.task(…)` may say. Each option is checked where it is written, not hours later in a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from holdfast.domain.credit import MOST
from holdfast.domain.internal import PREFIX, is_internal
from holdfast.domain.limits import Limits
from holdfast.domain.policy import Retry, preset
from holdfast.domain.suggest import suggest
from holdfast.domain.validation import a_function, number, optional_span, span, typed, whole, word
from holdfast.engine.dedupe import SCOPES
from holdfast.engine.ports import Retention
from holdfast.engine.tasks import EXECUTORS, STUCK_ACTIONS, Policy
from holdfast.errors import UsageError


def task_name(handler: object, given: object) -> str:
    """The name that is stored with the jobs: as *given*, else that of the *handler*."""
    if not callable(handler):
        raise UsageError(
            f"{handler!r:.60} is no function; write @app.task above one, with options by keyword: @app.task(name=…)"
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
    """Whether it was defined in a class, to be called on an object. One that is bound to its object is as good as a function."""
    place = getattr(handler, "__qualname__", "").rpartition(".")[0]
    if not inspect.isfunction(handler) or not place or place.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(handler).parameters), None) in ("self", "cls")


def _has_address(handler: Any) -> bool:
    """Whether another process finds it by its module and name: it does not find nested functions, lambdas and objects."""
    place = getattr(handler, "__qualname__", "")
    return inspect.isfunction(handler) and all(part.isidentifier() for part in place.split("."))


def read_policy(name: str, handler: Callable[..., Any], options: Mapping[str, Any]) -> Policy:
    """What a task says of itself; where it says nothing, `Policy` does."""
    known = Policy.__dataclass_fields__
    if unknown := sorted(options.keys() - known):
        raise UsageError(f"no task option {', '.join(unknown)}; {suggest(unknown[0], ['name', *known])}")
    is_async = inspect.iscoroutinefunction(handler)
    said = {option: _READ[option](option, value) for option, value in options.items() if option in _READ}
    if said.get("execute") is None:
        said["execute"] = "async" if is_async else "process" if said.get("timeout") else "thread"
    policy = Policy(**said)
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
        raise UsageError(f"{name} has encode= and no topic=; say where its messages go")
    if policy.topic is not None and policy.execute != "external":
        raise UsageError(f'{name} has a topic, so others execute it; declare it with execute="external"')
    return policy


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


def _longer_than_none(option: str, value: Any) -> timedelta | None:
    found = optional_span(option, value)
    if found is not None and not found:
        raise UsageError(f"{option} is 0; write a longer time, or None for none")
    return found


def checked_retention(option: str, value: Any) -> Retention:
    """Of one task: what it says, and not what all tasks share."""
    kept = typed(option, value, Retention, 'a Retention(results="7d", jobs="30d")')
    if kept.events is not None:
        raise UsageError(f"{option} says events, which jobs of all tasks share; say it of the app")
    return kept


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
            f"{option} is an async function; a check is a plain def, so that every road can ask it"
        )
    return value


def _or_none(read: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda option, value: None if value is None else read(option, value)


_READ: Mapping[str, Callable[[str, Any], Any]] = {
    "queue": word,
    "retry": _retry,
    "timeout": _longer_than_none,
    "lease": _longer_than_none,
    "depends_on": _or_none(word),
    "execute": _or_none(_one_of(EXECUTORS)),
    "max_crashes": lambda option, value: whole(option, value, 1, 1000),
    "store_result": lambda option, value: typed(option, value, bool, "True or False"),
    "deadline": _longer_than_none,
    "dedupe": lambda option, value: typed(option, value, bool, "True or False"),
    "dedupe_scope": _one_of(SCOPES),
    "dedupe_for": optional_span,
    "start_within": _longer_than_none,
    "retention": _or_none(checked_retention),
    "stuck_after": _longer_than_none,
    "stuck_action": _one_of(STUCK_ACTIONS),
    "version": lambda option, value: whole(option, value, 1, 1_000_000),
    "rules": _rules,
    "limits": _or_none(lambda option, value: typed(option, value, Limits, "a Limits(concurrency=…, rate=…)")),
    "cost": lambda option, value: number(option, value, 0, 1e9),
    "price": lambda option, value: whole(option, value, 0, MOST),
    "topic": _or_none(word),
    "encode": _or_none(
        lambda option, value: a_function(
            option, value, "a function from an external task to a body and its headers"
        )
    ),
    "http": lambda option, value: typed(option, value, bool, "True or False"),
    "check": _or_none(_check),
    "again_after": lambda option, value: span(option, value, timedelta(milliseconds=100), timedelta(days=30)),
}

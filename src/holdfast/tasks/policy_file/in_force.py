"""What is in force: the value of each key, where it comes from, and what it would be without the override."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any

from holdfast.jobs.internal import is_internal
from holdfast.resilience.limits import Limits, Rate
from holdfast.resilience.policy import Retry
from holdfast.tasks.options import OPTIONS
from holdfast.tasks.policy_file.line_numbers import Path
from holdfast.tasks.policy_file.overrides import SECTIONS, Override, lay_over
from holdfast.tasks.policy_file.reading import Document
from holdfast.tasks.policy_file.reloading import InForce, Reloader, Tasks
from holdfast.tasks.policy_file.tables import dotted
from holdfast.tasks.policy_file.values import MECHANISMS, DeclaredGuards
from holdfast.tasks.task import Policy
from holdfast.values.duration import format_duration

#: How many delays between attempts are shown.
SHOWN_DELAYS = 5
#: The keys of a task that a preset sets.
_OF_PRESET = frozenset({"max_attempts", "backoff", "attempts_by_code"})

Values = dict[Path, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyValue:
    """The value of one key that is in force."""

    key: str  #: as in a policy file: `tasks.convert.max_attempts`
    value: Any  #: None: none
    source: str  #: "code", "file" or "override"
    place: str | None  #: the file and the line, where it comes from the file
    override: Override | None  #: the override of this key, or of the queue that gives the task its value
    without: Any  #: what it would be without its override
    unknown: bool  #: it is of a task that the app does not declare
    refused: str | None  #: why the override is not in force here


def values_in_force(
    reloader: Reloader, tasks: Tasks, overrides: list[Override], under: Path = ()
) -> list[PolicyValue]:
    """Return the value of each key below *under*, given these *overrides*."""
    found, refused = reloader.fitting(tasks, overrides)
    document = lay_over(reloader.file, [one for one in overrides if one.key not in refused])
    now = _values(found, document, reloader.declared)
    before = _values(reloader.read(tasks, ()), reloader.file, reloader.declared)
    by_path: dict[Path, Override] = {one.path: one for one in overrides}
    kept = {path: one for path, one in by_path.items() if one.key not in refused}
    rows = []
    for path in sorted({*now, *by_path}, key=_order):
        if path[: len(under)] != under:
            continue
        setter, own = _setter(document, path, tasks), by_path.get(path)
        override = None if setter is None else _override_at(kept, setter)
        why = refused.get(own.key) if own else None
        rows.append(
            PolicyValue(
                key=dotted(path),
                value=_at(now, path),
                source="override" if override else "file" if setter else "code",
                place=document.source.place(setter) if setter and not override else None,
                override=own if why else override,
                without=_at(before, path) if override else None,
                unknown=path[0] == "tasks" and bool(tasks) and path[1] not in tasks,
                refused=why,
            )
        )
    return rows


# -- values -------------------------------------------------------------------------------------------------------------
def _values(found: InForce, document: Document, declared: DeclaredGuards) -> Values:
    """Return the values of all keys: as they work where that is known, else as the *document* has them."""
    values: Values = {}
    for name, policy in found.tasks.items():
        if not is_internal(name):
            values |= _of_task(("tasks", name), policy)
    policies = found.policies
    for name in {*declared.queues, *policies.queues}:
        limits = policies.queue_limits(name, declared.queues.get(name))
        values |= _of_limits(("queues", name, "limits"), limits)
    for name in {*declared.dependencies, *policies.dependencies}:
        policy_of_dependency = policies.dependency(name, declared.dependencies.get(name))
        for mechanism in MECHANISMS:
            part = getattr(policy_of_dependency, mechanism)
            path = ("dependencies", name, mechanism)
            values |= {path: False} if part is None else dict(_leaves(path, plain(part)))
    values |= {("priorities", level): weight for level, weight in policies.priorities.items()}
    covered = {path[:length] for path in values for length in range(2, len(path) + 1)}
    written = {
        path: value
        for path, value in _leaves((), document.values)
        if not any(path[:length] in covered for length in range(_least(path), len(path) + 1))
    }
    return values | written


def _of_task(path: Path, policy: Policy) -> Values:
    retry = policy.retry
    values: dict[str, Any] = {
        "max_attempts": retry.max_attempts,
        "backoff": delays(retry),
        "backoff.cap": retry.backoff.cap,
        "attempts_by_code": retry.attempts_by_code or None,
        "max_elapsed": retry.max_elapsed,
        "max_retry_after": retry.max_retry_after,
        "windows": retry.windows,
        "retention": policy.retention,
    }
    values |= {name: getattr(policy, name) for name, option in OPTIONS.items() if option.read_file}
    found: Values = {
        (*path, *key.split(".")): plain(value) for key, value in values.items() if value is not None
    }
    return found | _of_limits((*path, "limits"), policy.limits)


def _of_limits(path: Path, limits: Limits | None) -> Values:
    return {} if limits is None else dict(_leaves(path, plain(limits)))


def delays(retry: Retry) -> list[str]:
    """Return the range of each delay between attempts, of the first ones only: `2.5s to 5s`."""
    found: list[str] = []
    for failed in range(1, min(retry.max_attempts, SHOWN_DELAYS + 1)):
        ends = [plain(_to_ms(retry.backoff.delay(failed, chance))) for chance in (0.0, 1.0)]
        found.append(" to ".join(dict.fromkeys(ends)))
    return found


def _to_ms(span: timedelta) -> timedelta:
    return timedelta(milliseconds=round(span / timedelta(milliseconds=1)))


def plain(value: Any) -> Any:
    """Return a policy as people write it: durations as `30s`, functions by name, without options that are None."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Rate):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        shown = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {
            name: one for name, one in shown.items() if one not in (None, [], {}) and not name.startswith("_")
        }
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return getattr(value, "__qualname__", None) or repr(value)


# -- paths --------------------------------------------------------------------------------------------------------------
def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the values in tables within tables, each with its path."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves((*path, key), one)
    else:
        yield path, value


def _at(values: Values, path: Path) -> Any:
    """Return the value at *path*, or a table of those below it; None if there is none."""
    if path in values:
        return values[path]
    below = {dotted(one[len(path) :]): value for one, value in values.items() if one[: len(path)] == path}
    return below or None


def _setter(document: Document, path: Path, tasks: Tasks) -> Path | None:
    """Return the key of *document* that sets the value at *path*: its own, or one of a preset or of the task's queue."""
    candidates = [path]
    if path[0] == "tasks" and path[1] in tasks:
        key, queue = path[2:], ("queues", tasks[str(path[1])].policy.queue)
        keys = [key, ("preset",)] if key[0] in _OF_PRESET else [key]
        sections = [path[:2]] if key[0] == "limits" else [path[:2], queue]
        candidates = [(*section, *one) for section in sections for one in keys]
    found = (_written_at(document.values, candidate) for candidate in candidates)
    return next((one for one in found if one is not None), None)


def _written_at(values: Any, path: Path) -> Path | None:
    """Return *path* if it has a value, or the key above it that has one and no keys; else None."""
    for place, part in enumerate(path):
        if not isinstance(values, Mapping):
            return path[:place]
        if part not in values:
            return None
        values = values[part]
    return path


def _override_at(overrides: Mapping[Path, Override], path: Path) -> Override | None:
    """Return the override of *path*, of a key above it, or of one below it."""
    for length in range(len(path), 1, -1):
        if path[:length] in overrides:
            return overrides[path[:length]]
    return next((one for key, one in overrides.items() if key[: len(path)] == path), None)


def _least(path: Path) -> int:
    """Return how many parts a key of the section of *path* has at least."""
    return SECTIONS.get(str(path[0]), 2)


def _order(path: Path) -> tuple[int, list[str]]:
    sections = list(SECTIONS)
    place = sections.index(str(path[0])) if path[0] in SECTIONS else len(sections)
    return place, [str(part) for part in path]

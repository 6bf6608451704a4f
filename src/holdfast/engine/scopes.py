"""Find what a person names: a queue, a task, a lane, a dependency, a schedule or a maintenance task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.errors import UsageError
from holdfast.jobs.job import Lane
from holdfast.jobs.lanes import Dependency, Scope, ScopeKind, known_scope
from holdfast.values.suggest import suggest

#: The maintenance tasks that can be paused by name. "delayed" holds all jobs that are due later, "retries" the automatic
#: retries among them. "stuck" is the sweep for attempts that run too long, never the reclaim of lost leases. "relay"
#: delivers messages to their targets, in whichever process.
MAINTENANCE_NAMES = (
    "deadlines",
    "delayed",
    "notifiers",
    "operations",
    "relay",
    "retention",
    "retries",
    "schedules",
    "stuck",
    "webhooks",
)


async def find_scope(engine: Engine, kind: str, name: str) -> Scope:
    """Return the scope of this name. Raises `UsageError`, with similar names, when there is none."""
    if kind not in tuple(ScopeKind):
        raise UsageError(f"kind is {kind!r}; it is one of {', '.join(ScopeKind)}")
    schedules = {tick.name for tick in await schedule_ticks.every(engine.store)}.union(engine.schedules)
    return known_scope(
        ScopeKind(kind),
        name,
        await known_lanes(engine),
        schedules=schedules,
        maintenance=MAINTENANCE_NAMES,
    )


async def find_dependency(engine: Engine, name: str, known: Iterable[Dependency]) -> Dependency:
    """Return the dependency, or the shard of one, of this name. Raises `UsageError` when there is none."""
    lanes = [Dependency.of(lane) for lane in await known_lanes(engine)]
    found = {one.label: one for one in (*lanes, *known) if one is not None}
    if name not in found:
        raise UsageError(f"no dependency named {name!r}; {suggest(name, found)}")
    return found[name]


async def known_lanes(engine: Engine) -> Sequence[Lane]:
    """Return the lanes that were ever used, and those of the tasks of this app."""
    return sorted(await engine.store.lanes.all() | {task.lane for task in engine.tasks.values()})

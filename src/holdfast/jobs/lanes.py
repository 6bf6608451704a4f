"""Lanes and the holds on them.

A hold belongs to a queue, a task, a lane or a dependency, never to a job (rule 7 of
docs/explanation/reliability.md). A lane is held while any scope that covers it is held. Held jobs are not
changed: a claim skips their lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.jobs.job import Lane
from holdfast.values.suggest import suggest


class Dependency(NamedTuple):
    """An external service that tasks call, or one *shard* of it (a region, a tenant, an endpoint)."""

    name: str
    shard: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}#{self.shard}" if self.shard else self.name

    @classmethod
    def parse(cls, label: str) -> Dependency:
        """Return the dependency that *label* ("name" or "name#shard") names."""
        name, _, shard = label.partition("#")
        return cls(name, shard)

    @classmethod
    def of(cls, lane: Lane) -> Dependency | None:
        """Return the dependency that the jobs of *lane* call, or None."""
        return cls(lane.dependency, lane.shard) if lane.dependency else None


class ScopeKind(StrEnum):
    """The kinds of things that can be held as a whole."""

    QUEUE = "queue"
    TASK = "task"
    LANE = "lane"
    DEPENDENCY = "dependency"
    SCHEDULE = "schedule"
    MAINTENANCE = "maintenance"


class Scope(NamedTuple):
    """A queue, task, lane, dependency, schedule or kind of maintenance that can be held."""

    kind: ScopeKind
    name: str

    def covers(self, lane: Lane) -> bool:
        """Return whether a hold on this scope keeps *lane* from being claimed."""
        match self.kind:
            case ScopeKind.QUEUE:
                return lane.queue == self.name
            case ScopeKind.TASK:
                return lane.task == self.name
            case ScopeKind.LANE:
                return lane.label == self.name
            case ScopeKind.DEPENDENCY:
                # The name alone covers every shard of it.
                dependency = Dependency.of(lane)
                return dependency is not None and self.name in (dependency.name, dependency.label)
            case ScopeKind.SCHEDULE | ScopeKind.MAINTENANCE:
                return False

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Cause(StrEnum):
    """Why a scope is held. Each cause has its own hold, so that ending one does not end the other."""

    PAUSE = "pause"  # a person paused it
    RETRY_AFTER = "retry_after"  # the service asked for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A hold in force, until a moment or, if *until* is None, until a person resumes it."""

    scope: Scope
    cause: Cause
    until: datetime | None
    reason: str
    by: str
    at: datetime


def holding(holds: Iterable[Held], lane: Lane) -> Held | None:
    """Return the hold that keeps *lane* the longest, or None if it is not held."""
    found = [held for held in holds if held.scope.covers(lane)]
    endless = [held for held in found if held.until is None]
    return endless[0] if endless else max(found, key=lambda held: held.until, default=None)  # type: ignore[arg-type,return-value]


def scopes_of(lane: Lane) -> tuple[Scope, ...]:
    """Return every scope that covers *lane*."""
    found = [
        Scope(ScopeKind.QUEUE, lane.queue),
        Scope(ScopeKind.TASK, lane.task),
        Scope(ScopeKind.LANE, lane.label),
    ]
    dependency = Dependency.of(lane)
    if dependency is not None:
        labels = dict.fromkeys((dependency.name, dependency.label))
        found += [Scope(ScopeKind.DEPENDENCY, name) for name in labels]
    return tuple(found)


class HoldIndex:
    """Holds indexed by scope, so that the holds on a lane are found without a scan of all."""

    def __init__(self, holds: Iterable[Held]) -> None:
        self._by_scope: dict[Scope, list[Held]] = {}
        for held in holds:
            self._by_scope.setdefault(held.scope, []).append(held)

    def holding(self, lane: Lane) -> Held | None:
        """Return the hold that keeps *lane* the longest, or None if it is not held."""
        found = [held for scope in scopes_of(lane) for held in self._by_scope.get(scope, ())]
        return holding(found, lane) if found else None


def known_scope(
    kind: ScopeKind, name: str, lanes: Sequence[Lane], *, schedules: Iterable[str], maintenance: Iterable[str]
) -> Scope:
    """Return the scope named *name*; raise `UsageError` with similar names when there is none."""
    known: set[str]
    match kind:
        case ScopeKind.QUEUE:
            known = {lane.queue for lane in lanes}
        case ScopeKind.TASK:
            known = {lane.task for lane in lanes}
        case ScopeKind.LANE:
            known = {lane.label for lane in lanes}
        case ScopeKind.DEPENDENCY:
            found = {dependency for lane in lanes if (dependency := Dependency.of(lane)) is not None}
            known = {dependency.label for dependency in found} | {dependency.name for dependency in found}
        case ScopeKind.SCHEDULE:
            known = set(schedules)
        case ScopeKind.MAINTENANCE:
            known = set(maintenance)
    if name not in known:
        raise UsageError(f"no {kind} named {name!r}; {suggest(name, known)}")
    return Scope(kind, name)

"""Lanes and what holds them: a hold belongs to a queue, a task, a lane or a dependency, never to a job (rule 7 of docs/explanation/reliability.md).

A lane is held while any scope that covers it is. Held jobs are not touched: the claim passes the lane by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from holdfast.domain.job import Lane
from holdfast.domain.suggest import suggest
from holdfast.errors import UsageError


class Dependency(NamedTuple):
    """An outside service that tasks call, or one *shard* of it (a region, a tenant, an endpoint)."""

    name: str
    shard: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}#{self.shard}" if self.shard else self.name

    @classmethod
    def parse(cls, label: str) -> Dependency:
        name, _, shard = label.partition("#")
        return cls(name, shard)

    @classmethod
    def of(cls, lane: Lane) -> Dependency | None:
        return cls(lane.dependency, lane.shard) if lane.dependency else None


class ScopeKind(StrEnum):
    """What can be held as one."""

    QUEUE = "queue"
    TASK = "task"
    LANE = "lane"
    DEPENDENCY = "dependency"
    SCHEDULE = "schedule"
    MAINTENANCE = "maintenance"


class Scope(NamedTuple):
    kind: ScopeKind
    name: str

    def covers(self, lane: Lane) -> bool:
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
    """Why a scope is held. Of one scope each cause has a hold of its own, so that neither undoes the other."""

    PAUSE = "pause"  # somebody decided
    RETRY_AFTER = "retry_after"  # the service asked for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A hold in force. *until* None: until somebody resumes it."""

    scope: Scope
    cause: Cause
    until: datetime | None
    reason: str
    by: str
    at: datetime


def holding(holds: Iterable[Held], lane: Lane) -> Held | None:
    """The hold that keeps *lane* the longest, if any does."""
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
    """Holds by their scopes: which of them cover a lane does not take looking at all of them."""

    def __init__(self, holds: Iterable[Held]) -> None:
        self._by_scope: dict[Scope, list[Held]] = {}
        for held in holds:
            self._by_scope.setdefault(held.scope, []).append(held)

    def holding(self, lane: Lane) -> Held | None:
        """Return the hold that keeps *lane* the longest, if any does."""
        found = [held for scope in scopes_of(lane) for held in self._by_scope.get(scope, ())]
        return holding(found, lane) if found else None


def known_scope(
    kind: ScopeKind, name: str, lanes: Sequence[Lane], *, schedules: Iterable[str], maintenance: Iterable[str]
) -> Scope:
    """The scope of that name, or `UsageError` with the names that are near."""
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

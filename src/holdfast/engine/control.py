"""Steering lanes: pause, resume, and how they stand. Mixed into the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

from holdfast.domain.breaker import Breaker, BreakerPolicy, BreakerState, forced
from holdfast.domain.job import Lane
from holdfast.domain.lanes import Cause, Dependency, Held, Scope, ScopeKind, known_scope
from holdfast.domain.moves import Kind
from holdfast.domain.suggest import suggest
from holdfast.engine.admission import Admission
from holdfast.engine.lane_store import DependencyState
from holdfast.engine.ports import Store
from holdfast.engine.tasks import Task
from holdfast.errors import Changed, Conflict, UsageError

#: The duties that can be paused by name. "delayed" holds all jobs that are due later, "retries" the automatic retries
#: among them; "stuck" is the sweep for attempts that run too long, never the reclaim of lost leases.
#: "relay" brings messages to their targets, in whichever process.
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
#: How often a breaker is changed anew when a worker was first.
SWAPS = 5
#: Of a breaker, one of which it must have; None: whichever.
Versions = Collection[int] | None


class Control:
    store: Store
    tasks: dict[str, Task[Any, Any]]
    admission: Admission
    schedules: Collection[str] = ()  #: those that the app here declares

    async def scope(self, kind: str, name: str) -> Scope:
        """What people name, or `UsageError` with the names that are near."""
        if kind not in tuple(ScopeKind):
            raise UsageError(f"kind is {kind!r}; it is one of {', '.join(ScopeKind)}")
        schedules = {tick.name for tick in await self.store.ticks()}.union(self.schedules)
        return known_scope(
            ScopeKind(kind),
            name,
            await self.known_lanes(),
            schedules=schedules,
            maintenance=MAINTENANCE_NAMES,
        )

    async def known_lanes(self) -> Sequence[Lane]:
        """Those that were used, and those of the tasks known here, used or not."""
        return sorted(await self.store.lanes() | {task.lane for task in self.tasks.values()})

    async def pause(self, kind: str, name: str, *, span: timedelta | None, reason: str, by: str) -> Scope:
        scope = await self.scope(kind, name)
        await self.store.hold(scope, Cause.PAUSE, span=span, reason=reason, by=by)
        return scope

    async def resume(self, kind: str, name: str, *, by: str) -> bool:
        """End a pause; whether there was one."""
        return await self.store.resume(await self.scope(kind, name), Cause.PAUSE, by=by)

    async def forget_schedule(self, name: str) -> None:
        """Delete a schedule that no code declares any more. Raises `UsageError` when none has that name."""
        scope = await self.scope(ScopeKind.SCHEDULE, name)
        await self.store.resume(scope, Cause.PAUSE, by="forget")
        await self.store.forget_schedule(name)

    async def holds(self) -> list[Held]:
        return await self.store.holds()

    async def breakers(self) -> list[DependencyState]:
        return await self.store.dependency_states()

    async def open_breaker(
        self, name: str, *, span: timedelta | None, reason: str, by: str, versions: Versions = None
    ) -> Breaker:
        """Open the breaker of a dependency, for *span* (None: its cooldown); then trials begin. `Conflict` if it is open.
        `Changed`, here and below, if its version is none of *versions* when it is changed."""
        return await self._force(name, BreakerState.OPEN, span, reason, by, versions)

    async def close_breaker(self, name: str, *, reason: str, by: str, versions: Versions = None) -> Breaker:
        """Close it, without trials; its workers begin at a low limit again. `Conflict` if it is closed."""
        return await self._force(name, BreakerState.CLOSED, None, reason, by, versions)

    async def try_breaker(self, name: str, *, reason: str, by: str, versions: Versions = None) -> Breaker:
        """Let its trials begin now, whether it is open or closed. `Conflict` if they have begun."""
        return await self._force(name, BreakerState.OPEN, timedelta(), reason, by, versions, trial=True)

    async def _force(
        self,
        name: str,
        state: BreakerState,
        span: timedelta | None,
        reason: str,
        by: str,
        versions: Versions,
        *,
        trial: bool = False,
    ) -> Breaker:
        for _ in range(SWAPS):
            dependency_states = {
                state_of_dependency.dependency: state_of_dependency
                for state_of_dependency in await self.store.dependency_states()
            }
            dependency = await self._dependency(name, dependency_states)
            state_of_dependency = dependency_states.get(dependency)
            breaker, now = (
                state_of_dependency.breaker if state_of_dependency else Breaker(),
                await self.store.now(),
            )
            if (
                versions is not None and breaker.version not in versions
            ):  # `swap_breaker` compares it once more
                raise Changed(f"the breaker of {dependency.label}")
            if breaker.state is (BreakerState.HALF_OPEN if trial else state):
                raise Conflict(f"the breaker of {dependency.label} is {breaker.state} already")
            policy = self.admission.dependency(dependency.name).breaker or BreakerPolicy()
            until = now + (policy.cooldown if span is None else span) if state is BreakerState.OPEN else None
            changed = forced(breaker, now=now, open_until=until)
            opens = state is BreakerState.OPEN
            if await self.store.swap_breaker(
                dependency,
                changed,
                holds=opens and policy.mode == "hold",
                kind=Kind.breaker_opened if opens else Kind.breaker_closed,
                meta={"by": by} | ({"reason": reason} if reason else {}) | ({"trial": True} if trial else {}),
            ):
                return changed
        raise Conflict(f"the breaker of {name} is changed by its workers all the time; try again")

    async def _dependency(self, name: str, known: Iterable[Dependency]) -> Dependency:
        """The dependency, or the shard of one, that people name."""
        lanes = [Dependency.of(lane) for lane in await self.known_lanes()]
        found = {one.label: one for one in (*lanes, *known) if one is not None}
        if name not in found:
            raise UsageError(f"no dependency named {name!r}; {suggest(name, found)}")
        return found[name]

"""`app.breakers`: see the dependencies as all workers see them, open, close and try their breakers, guard a call."""

from __future__ import annotations

import builtins
from collections.abc import Collection
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import DependencyState
from holdfast.engine.namespace import EngineSource, Namespace
from holdfast.engine.scopes import find_dependency
from holdfast.engine.tables.dependencies import dependency_states, swap_breaker
from holdfast.errors import Changed, Conflict
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.moves import Kind
from holdfast.resilience.breaker import Breaker, BreakerPolicy, BreakerState, forced
from holdfast.values.duration import Duration
from holdfast.values.validation import optional_span, word

#: How often a breaker is changed again when a worker changed it first.
_SWAPS = 5


G_co = TypeVar("G_co", covariant=True)


class GuardSource(EngineSource, Protocol[G_co]):
    """What the namespace of breakers needs of an app."""

    def guard(self, dependency: Dependency) -> G_co:
        """Return what stands around calls of *dependency* that are made outside of a worker."""


class Breakers(Namespace, Generic[G_co]):
    """The breakers of dependencies. Their state is shared by all workers."""

    def __init__(self, source: GuardSource[G_co]) -> None:
        super().__init__(source)
        self._guard = source.guard

    def guard(self, name: str, shard: str = "") -> G_co:
        """Guard calls of the dependency *name* from any process: `with app.breakers.guard("bank"): …`, or `async with`.

        Raises `DependencyHeld` on entry while the breaker is open. In a handler use `job.dependency(name)`, which puts the
        job off by itself.
        """
        return self._guard(Dependency(word("name", name), shard))

    async def list(self) -> builtins.list[DependencyState]:
        """Return the dependencies as all workers together see them."""
        return await dependency_states((await self._engine()).store)

    async def open(
        self,
        name: str,
        *,
        duration: Duration | None = None,
        reason: str = "",
        by: str = "api",
        versions: Collection[int] | None = None,
    ) -> Breaker:
        """Hold all calls of a dependency for *duration*, by default its cooldown. Then trials begin.

        Args:
            name: The dependency, or the shard of one.
            duration: How long.
            reason: Recorded with the event.
            by: Who does it; recorded with the event.
            versions: Change the breaker only if its version is one of these.

        Raises:
            Changed: Its version is none of *versions*.
            Conflict: It is open already.
        """
        span = optional_span("duration", duration)
        return await self._force(name, BreakerState.OPEN, span, reason, by, versions)

    async def close(
        self, name: str, *, reason: str = "", by: str = "api", versions: Collection[int] | None = None
    ) -> Breaker:
        """Let calls of a dependency begin again, without trials. Workers start at a low limit.

        Raises `Conflict` when it is closed, and `Changed` as `open` does.
        """
        return await self._force(name, BreakerState.CLOSED, None, reason, by, versions)

    async def try_(
        self, name: str, *, reason: str = "", by: str = "api", versions: Collection[int] | None = None
    ) -> Breaker:
        """Let the trials of a dependency begin now: a few calls decide whether the others follow.

        Raises `Conflict` when they have begun, and `Changed` as `open` does.
        """
        return await self._force(name, BreakerState.OPEN, timedelta(), reason, by, versions, trial=True)

    async def _force(
        self,
        name: str,
        state: BreakerState,
        span: timedelta | None,
        reason: str,
        by: str,
        versions: Collection[int] | None,
        *,
        trial: bool = False,
    ) -> Breaker:
        engine, opens = await self._engine(), state is BreakerState.OPEN
        for _ in range(_SWAPS):
            states = {known.dependency: known for known in await dependency_states(engine.store)}
            dependency = await find_dependency(engine, name, states)
            breaker = states[dependency].breaker if dependency in states else Breaker()
            if versions is not None and breaker.version not in versions:  # `swap_breaker` compares once more
                raise Changed(f"the breaker of {dependency.label}")
            if breaker.state is (BreakerState.HALF_OPEN if trial else state):
                raise Conflict(f"the breaker of {dependency.label} is {breaker.state} already")
            policy = engine.admission.dependency(dependency.name).breaker or BreakerPolicy()
            now = await engine.store.now()
            until = now + (policy.cooldown if span is None else span) if opens else None
            changed = forced(breaker, now=now, open_until=until)
            if await swap_breaker(
                engine.store,
                dependency,
                changed,
                holds=opens and policy.mode == "hold",
                kind=Kind.breaker_opened if opens else Kind.breaker_closed,
                meta=_meta(by, reason, trial=trial),
            ):
                return changed
        raise Conflict(f"the breaker of {name} is changed by its workers all the time; try again")


def _meta(by: str, reason: str, *, trial: bool) -> dict[str, object]:
    return {"by": by} | ({"reason": reason} if reason else {}) | ({"trial": True} if trial else {})


async def breaker_of(engine: Engine, name: str) -> DependencyState | None:
    """Return the state of the dependency of this name; None when no worker has reported it."""
    found = [state for state in await dependency_states(engine.store) if state.dependency.label == name]
    return found[0] if found else None

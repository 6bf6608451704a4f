"""Lanes here: what holds them, how dependencies stand, what is limited, and where schedules stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain.breaker import Breaker
from holdfast.domain.job import Event, JobId, Lane, Lease, Session, SessionId
from holdfast.domain.lanes import Cause, Dependency, Held, HoldIndex, Scope, ScopeKind
from holdfast.domain.moves import Kind
from holdfast.domain.periods import period_begins, period_ends
from holdfast.domain.queue_position import Use
from holdfast.engine.lane_store import (
    REPORT_COUNTS_FOR,
    Cap,
    Charge,
    DependencyReport,
    DependencyState,
    QuotaRefusal,
    Tick,
)
from holdfast.stores.encoding import some
from holdfast.stores.memory.intake import in_line
from holdfast.stores.memory.tables import Tables


@dataclass(slots=True)
class LaneTables:
    holds: dict[tuple[Scope, Cause], Held] = field(default_factory=dict)
    breakers: dict[Dependency, Breaker] = field(default_factory=dict)
    closed_off: set[Dependency] = field(default_factory=set)  #: their breakers hold their lanes
    reports: dict[tuple[Dependency, SessionId], tuple[datetime, DependencyReport]] = field(
        default_factory=dict
    )
    slots: dict[str, set[Lease]] = field(default_factory=lambda: defaultdict(set))
    meters: dict[str, datetime] = field(default_factory=dict)  #: when the next one would be exactly on time
    used: dict[tuple[str, str], tuple[datetime, int]] = field(default_factory=dict)
    schedules: dict[str, Tick] = field(default_factory=dict)


class Lanes:
    """The part of the port that `holdfast.engine.lane_store` describes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._kept = LaneTables()
        tables.paused = self._paused

    async def now(self) -> datetime:
        return self._tables.clock.now()

    # -- holding ----------------------------------------------------------------------------------------------------
    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        now = self._tables.clock.now()
        until = None if span is None else now + span
        before = self._kept.holds.get((scope, cause))
        if (
            cause is Cause.RETRY_AFTER
            and before is not None
            and before.until is not None
            and until is not None
        ):
            until = max(until, before.until)
        in_line(self._tables, now)  # who is due by now is not kept out any more
        held = Held(scope=scope, cause=cause, until=until, reason=reason, by=by, at=now)
        self._kept.holds[scope, cause] = held
        if cause is Cause.PAUSE:
            self._tell(Kind.paused, scope=str(scope), reason=reason, by=by, until=until and until.isoformat())

    async def resume(self, scope: Scope, cause: Cause, *, by: str) -> bool:
        held = self._kept.holds.pop((scope, cause), None)
        if held is None or (held.until is not None and held.until <= self._tables.clock.now()):
            return False
        if cause is Cause.PAUSE:
            self._tell(Kind.resumed, scope=str(scope), by=by)
        return True

    async def holds(self) -> list[Held]:
        return self._in_force()

    def _in_force(self) -> list[Held]:
        now = self._tables.clock.now()
        return [held for held in self._kept.holds.values() if held.until is None or held.until > now]

    def _paused(self) -> Collection[str]:
        if not self._kept.holds:
            return ()
        return {held.scope.name for held in self._in_force() if held.scope.kind is ScopeKind.MAINTENANCE}

    def open_lanes(self, lanes: Sequence[Lane], trial: bool) -> list[Lane]:
        """Those that nothing holds."""
        holds, closed_off = HoldIndex(self._in_force()), set() if trial else self._kept.closed_off
        return [
            lane
            for lane in lanes
            if holds.holding(lane) is None and Dependency(lane.dependency, lane.shard) not in closed_off
        ]

    def _tell(self, kind: Kind, **meta: Any) -> None:
        """An event of no job."""
        self._tables.events.append(
            Event(
                id=self._tables.next_event(),
                at=self._tables.clock.now(),
                kind=kind.name,
                job_id=JobId(""),
                epoch=0,
                attempt=0,
                meta=some(meta),
            )
        )

    # -- dependencies -----------------------------------------------------------------------------------------------
    async def report(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
        now = self._tables.clock.now()
        for report in reports:
            self._kept.reports[report.dependency, session.id] = now, report
        wanted = {report.dependency for report in reports}
        return [
            state_of_dependency
            for state_of_dependency in await self.dependency_states()
            if state_of_dependency.dependency in wanted
        ]

    async def dependency_states(self) -> list[DependencyState]:
        now = self._tables.clock.now()
        fresh: dict[Dependency, list[DependencyReport]] = defaultdict(list)
        for at, report in self._kept.reports.values():
            if now - at <= REPORT_COUNTS_FOR:
                fresh[report.dependency].append(report)
        return [
            self._dependency_state(name, fresh[name], now)
            for name in sorted(fresh.keys() | self._kept.breakers)
        ]

    def _dependency_state(
        self, dependency: Dependency, reports: list[DependencyReport], now: datetime
    ) -> DependencyState:
        breaker = self._kept.breakers.get(dependency, Breaker())
        timed = [report.latency for report in reports if report.latency is not None]
        return DependencyState(
            dependency=dependency,
            breaker=breaker,
            votes=sum(report.vote and report.version == breaker.version for report in reports),
            callers=len(reports),
            limit=sum(report.limit for report in reports),
            in_flight=sum(report.in_flight for report in reports),
            latency=sum(timed) / len(timed) if timed else None,
            calls=sum(report.calls for report in reports),
            failures=sum(report.failures for report in reports),
            now=now,
        )

    async def swap_breaker(
        self,
        dependency: Dependency,
        breaker: Breaker,
        *,
        holds: bool,
        kind: Kind | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        if self._kept.breakers.get(dependency, Breaker()).version != breaker.version - 1:
            return False
        self._kept.breakers[dependency] = breaker
        (self._kept.closed_off.add if holds else self._kept.closed_off.discard)(dependency)
        if kind is not None:
            self._tell(kind, dependency=dependency.label, **(meta or {}))
        return True

    # -- limits -----------------------------------------------------------------------------------------------------
    def room(self, caps: Sequence[Cap]) -> int | None:
        """How many more these caps let be claimed now; None: any number."""
        return min((left for cap in caps if (left := self._left(cap)) is not None), default=None)

    def _left(self, cap: Cap) -> int | None:
        bounds: list[int] = []
        if cap.concurrency is not None:
            slots = self._kept.slots[cap.scope]
            slots -= {lease for lease in slots if not self._is_current(lease)}
            bounds.append(max(0, cap.concurrency - len(slots)))
        if cap.rate is not None:
            now, step = self._tables.clock.now(), cap.per / cap.rate
            ahead = max(self._kept.meters.get(cap.scope, now), now) - now
            bounds.append(int((cap.per - ahead) / step + 1e-9))
        return min(bounds, default=None)

    def _is_current(self, lease: Lease) -> bool:
        job = self._tables.jobs.get(lease.job_id)
        return job is not None and job.holds(lease)

    def use(self, scope: str) -> Use:
        """How much of a bound is in use."""
        now = self._tables.clock.now()
        running = sum(self._is_current(lease) for lease in self._kept.slots.get(scope, ()))
        return Use(running, max(self._kept.meters.get(scope, now), now) - now)

    def occupy(self, caps: Sequence[Cap], leases: Sequence[Lease]) -> None:
        """These claims were made under the caps."""
        for cap in caps:
            self._kept.slots[cap.scope].update(leases if cap.concurrency is not None else ())
            if cap.rate is not None:
                now = self._tables.clock.now()
                start = max(self._kept.meters.get(cap.scope, now), now)
                self._kept.meters[cap.scope] = start + len(leases) * (cap.per / cap.rate)

    async def charge(self, charges: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
        return [self._charge(group) for group in charges]

    def _charge(self, group: Sequence[Charge]) -> QuotaRefusal | None:
        refusals = [refusal for charge in group if (refusal := self._refusal(charge)) is not None]
        if refusals:
            return max(refusals, key=lambda refusal: refusal.resets_in)
        now = self._tables.clock.now()
        for charge in group:
            if charge.period == "rate":
                start = max(self._kept.meters.get(charge.scope, now), now)
                self._kept.meters[charge.scope] = start + charge.amount * (charge.per / charge.limit)
            else:
                begins = period_begins(charge.period, now)
                self._kept.used[charge.scope, charge.period] = (
                    begins,
                    max(self._used(charge) + charge.amount, 0),
                )
        return None

    def _refusal(self, charge: Charge) -> QuotaRefusal | None:
        now = self._tables.clock.now()
        if charge.period == "rate":
            ahead = max(self._kept.meters.get(charge.scope, now), now) - now
            wait = ahead + charge.amount * (charge.per / charge.limit) - charge.per
            return QuotaRefusal(charge, charge.limit, wait) if wait > timedelta() else None
        used = self._used(charge)
        if used + charge.amount <= charge.limit:
            return None
        return QuotaRefusal(charge, used, period_ends(charge.period, now) - now)

    def _used(self, charge: Charge) -> int:
        begins = period_begins(charge.period, self._tables.clock.now())
        kept, used = self._kept.used.get((charge.scope, charge.period), (begins, 0))
        return used if kept == begins else 0

    async def usage(self, scope: str) -> dict[str, int]:
        now = self._tables.clock.now()
        return {
            period: used
            for (name, period), (begins, used) in self._kept.used.items()
            if name == scope and begins == period_begins(period, now)
        }

    async def weigh(self, weights: Mapping[str, float]) -> None:
        self._tables.weights |= weights

    def share(self, priorities: Mapping[str, int]) -> None:
        self._tables.turns.weights = dict(priorities)

    # -- schedules --------------------------------------------------------------------------------------------------
    async def ticks(self) -> list[Tick]:
        return sorted(self._kept.schedules.values())

    async def tick(
        self,
        name: str,
        *,
        before: datetime | None,
        last: datetime,
        due: datetime,
        ticked: datetime | None = None,
    ) -> bool:
        kept = self._kept.schedules.get(name)
        if (kept.last if kept else None) != before:
            return False
        self._kept.schedules[name] = Tick(name, last, due, ticked or (kept.ticked if kept else None))
        return True

    async def forget_schedule(self, name: str) -> bool:
        return self._kept.schedules.pop(name, None) is not None

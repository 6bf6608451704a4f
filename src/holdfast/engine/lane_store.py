"""What the engine asks of a store about lanes: holds, breakers, limits, meters and schedules. Part of the port `Store`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from holdfast.domain.breaker import Breaker
from holdfast.domain.job import Session
from holdfast.domain.lanes import Cause, Dependency, Held, Scope
from holdfast.domain.moves import Kind


class DependencyReport(NamedTuple):
    """What one worker has seen of a dependency, and what it does about it. Replaces what it reported before."""

    dependency: Dependency
    version: int  #: of the breaker that its vote is about
    vote: bool  #: it holds the dependency for broken
    limit: int
    in_flight: int
    latency: float | None  #: mean seconds of late
    calls: int  #: since the worker began
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyState:
    """A dependency as all workers together see it. *now* is the store's clock."""

    dependency: Dependency
    breaker: Breaker
    votes: int  #: of workers that have seen this version of the breaker
    callers: int  #: workers that reported within the last `REPORT_COUNTS_FOR`
    limit: int  #: of all of them together
    in_flight: int
    latency: float | None
    calls: int
    failures: int
    now: datetime


#: A report that was not renewed for this long does not count any more: its worker is gone, or calls no longer.
REPORT_COUNTS_FOR = timedelta(seconds=10)


class Cap(NamedTuple):
    """A limit over all workers for the lanes of one claim: a concurrency, a rate, or both."""

    scope: str  #: names what is counted as one, e.g. "queue:mail"
    concurrency: int | None = None
    rate: int | None = None  #: how many starts …
    per: timedelta = timedelta(seconds=1)  #: … in this time, evenly, with a burst of *rate*


class Charge(NamedTuple):
    """Use of something that is limited per period: one scope, one amount."""

    scope: str  #: e.g. "owner:alice"
    period: str  #: "day", "month", or "rate": then *per* says how long
    limit: int
    amount: int = 1
    per: timedelta = timedelta()


class QuotaRefusal(NamedTuple):
    """The charge that did not fit any more, and when it will."""

    charge: Charge
    used: int
    resets_in: timedelta


class Tick(NamedTuple):
    """Where a schedule stands."""

    name: str
    last: datetime | None  #: every tick up to here was handled: enqueued, or passed over as its rule says
    due: datetime
    ticked: datetime | None = None  #: the newest tick whose job was enqueued; None: there was none yet


class LaneStore(Protocol):
    # -- holding ----------------------------------------------------------------------------------------------------
    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        """From now on claims pass by what *scope* covers: for *span*, or until `resume` (None). One row, no job is touched.

        A second pause replaces the first; a second Retry-After can only make the hold longer. The pauses of people are
        events (`paused`).
        """

    async def resume(self, scope: Scope, cause: Cause, *, by: str) -> bool:
        """End a hold before its time; whether there was one. An event (`resumed`) for the pauses of people."""

    async def holds(self) -> list[Held]:
        """Those in force."""

    # -- dependencies -----------------------------------------------------------------------------------------------
    async def report(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
        """Tell what this worker saw, and learn how its dependencies stand: one statement, called once a second."""

    async def dependency_states(self) -> list[DependencyState]:
        """Every dependency that has a breaker's row or a live report; writes nothing."""

    async def swap_breaker(
        self,
        dependency: Dependency,
        breaker: Breaker,
        *,
        holds: bool,
        kind: Kind | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        """Compare-and-set: *breaker* replaces the value of the version before. False when somebody was first.

        *holds*: claims pass by the lanes of this dependency, but for trials. *kind*: the event that tells of it.
        """

    # -- limits -----------------------------------------------------------------------------------------------------
    async def charge(self, charges: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
        """For each group of charges: take all of them, or none and the refusal that lasts longest. Days and months are of
        UTC by the store's clock. A negative amount gives back, down to nothing: what an earlier period has paid is not given."""

    async def usage(self, scope: str) -> dict[str, int]:
        """How much of each period was used: {"day": 12, "month": 340}."""

    async def weigh(self, weights: Mapping[str, float]) -> None:
        """Set the shares of owners in fair lines; an owner without one has 1."""

    def share(self, priorities: Mapping[str, int]) -> None:
        """Set the weights of the levels of priority (`domain.fairness.WEIGHTS`) for the claims of this process."""

    # -- schedules --------------------------------------------------------------------------------------------------
    async def ticks(self) -> list[Tick]:
        """Every schedule that has ever ticked, or is known to tick."""

    async def tick(
        self,
        name: str,
        *,
        before: datetime | None,
        last: datetime,
        due: datetime,
        ticked: datetime | None = None,
    ) -> bool:
        """Compare-and-set of a schedule's place: False when another process was first. *before* None: it is new.

        Without *ticked* the newest enqueued tick stays what it was.
        """

    async def forget_schedule(self, name: str) -> bool:
        """Delete a schedule's place and return whether there was one.

        A schedule that is still declared starts anew: earlier ticks do not count as missed.
        """

    async def now(self) -> datetime:
        """The store's clock."""

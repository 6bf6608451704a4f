"""What the engine asks of a store about lanes: holds, breakers, limits and meters. A store offers it as `store.lanes`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from holdfast.jobs.job import Lane, Session
from holdfast.jobs.lanes import Cause, Dependency, Scope
from holdfast.resilience.breaker import Breaker


class DependencyReport(NamedTuple):
    """What one worker has seen of a dependency. A report replaces the worker's report before it."""

    dependency: Dependency
    version: int  #: the version of the breaker that the vote is about
    vote: bool  #: whether this worker considers the dependency broken
    limit: int  #: how many calls this worker allows at a time
    in_flight: int  #: how many calls it is making now
    latency: float | None  #: the mean duration of its recent calls in seconds
    calls: int  #: since the worker began
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyState:
    """A dependency as all workers together see it."""

    dependency: Dependency
    breaker: Breaker
    votes: int  #: how many workers consider it broken that have seen this version of the breaker
    callers: int  #: how many workers have reported within the last `REPORT_COUNTS_FOR`
    limit: int  #: how many calls all of them together allow at a time
    in_flight: int  #: how many calls all of them together are making
    latency: float | None
    calls: int
    failures: int
    now: datetime  #: the store's clock


#: A report that is older does not count: its worker is gone, or does not call the dependency any more.
REPORT_COUNTS_FOR = timedelta(seconds=10)


class Cap(NamedTuple):
    """A limit over all workers for the lanes of one claim: a concurrency, a rate, or both."""

    scope: str  #: the name under which jobs are counted together, e.g. "queue:mail"
    concurrency: int | None = None  #: how many of the jobs may run at a time
    rate: int | None = None  #: how many of them may start …
    per: timedelta = timedelta(seconds=1)  #: … in this time, spread evenly, with a burst of *rate*


class Charge(NamedTuple):
    """An amount that one scope uses of a limit per period."""

    scope: str  #: e.g. "owner:alice"
    period: str  #: "day", "month", or "rate", whose period is *per*
    limit: int
    amount: int = 1
    per: timedelta = timedelta()


class QuotaRefusal(NamedTuple):
    """A charge that was refused because its limit is used up."""

    charge: Charge
    used: int  #: how much of the limit is used
    resets_in: timedelta  #: how long it is until the charge would fit


class LaneStore(Protocol):
    """The lanes of a store, and what decides how fast their jobs may start."""

    # -- all lanes --------------------------------------------------------------------------------------------------
    async def all(self) -> set[Lane]:
        """Return every lane that was ever used. The cost does not depend on the number of queued jobs."""

    async def waiting(self) -> set[Lane]:
        """Return every lane that has queued jobs now. The cost depends neither on the number of empty lanes nor on the number
        of queued jobs."""

    async def depths(self, lanes: Collection[Lane] | None = None) -> dict[Lane, int]:
        """Return how many jobs are queued in each of these lanes, due now or later. Jobs are counted one by one.

        Args:
            lanes: The lanes to count. None counts all lanes.
        """

    # -- holding ----------------------------------------------------------------------------------------------------
    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        """Let claims skip the lanes that *scope* covers, from now on. This writes one row and changes no job.

        A second pause replaces the first. A second Retry-After can only make the hold longer. A pause by a person is recorded
        as an event (`paused`).

        Args:
            scope: What is held.
            cause: Why it is held. Each cause of a scope has a hold of its own.
            span: How long the hold lasts. None lets it last until it is ended.
            reason: The text that people see.
            by: Who holds it.
        """

    async def freed(self) -> None:
        """Take note that a hold or a breaker holds its lanes no more.

        The claims of this process read these lanes again, and the callers that wait for work wake up.
        """

    # -- dependencies -----------------------------------------------------------------------------------------------
    async def report(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
        """Store what this worker has seen of its dependencies, and return the state of each.

        Every worker calls it once a second, so a report without news writes nothing.
        """

    # -- limits -----------------------------------------------------------------------------------------------------
    async def charge(self, charges: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
        """Charge each group of charges, all of a group or none, and return for each group None or the refusal that lasts longest.

        Days and months are those of UTC by the store's clock. A negative amount is refunded, and the use of a period never
        falls below 0, so that a refund for an earlier period changes nothing.
        """

    async def weigh(self, weights: Mapping[str, float]) -> None:
        """Set the weights of these owners in fair lanes. An owner without a weight has 1."""

    def share(self, priorities: Mapping[str, int]) -> None:
        """Set the weights of the levels of priority (`holdfast.resilience.fairness.WEIGHTS`) for the claims of this process."""

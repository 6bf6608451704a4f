"""The one seam through which others learn what this process has done: counters, for instance. Nobody listens by default.

An observer is told after the fact and once for a whole group, on whatever thread did it. It can change nothing, and what
it raises is logged and forgotten: a counter must not cost a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from holdfast.domain.external import Outcome
from holdfast.domain.job import Claimed, Enqueued, Expired, JobRow, NewJob, Settlement
from holdfast.domain.lanes import Dependency
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Failure
from holdfast.engine.ports import Reclaim, SettlementStatus
from holdfast.logs import Log

log = Log("holdfast.engine")

#: An attempt's end, and the job as it was claimed; None where only the lease was known.
End = tuple[Settlement, Claimed | None]


class Observer(Protocol):
    def enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """They are stored, but for duplicates. In a caller's own transaction: they will be, if it commits."""

    def rejected(self, job: NewJob, failure: Failure) -> None:
        """A refused input was put on record."""

    def settled(self, ends: Sequence[End], answers: Sequence[SettlementStatus]) -> None:
        """The store has answered these ends."""

    def reclaimed(self, taken: Sequence[tuple[Expired, Reclaim]], done: int) -> None:
        """Report that *done* of these were reclaimed; other workers settled the rest first."""

    def timed_out(self, jobs: int) -> None:
        """Report that *jobs* jobs failed because their deadline passed."""

    def retried(self, kind: Kind) -> None:
        """A person had a job run again: `manual_retry` or `redriven`."""

    def called(self, dependency: Dependency, seconds: float) -> None:
        """A call of a dependency has ended."""

    def reported(self, job: JobRow, outcome: Outcome) -> None:
        """A job that others execute was ended or put back by their report; *job* is as it is then."""


class Observers:
    """All that listen, as one of them."""

    __slots__ = ("_all", "any")

    def __init__(self) -> None:
        self._all: tuple[Observer, ...] = ()
        self.any = False  #: asked before what is told for every call

    def add(self, observer: Observer) -> None:
        self._all, self.any = (*self._all, observer), True

    def enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        for one in self._all:
            _tell(one.enqueued, jobs, answers)

    def rejected(self, job: NewJob, failure: Failure) -> None:
        for one in self._all:
            _tell(one.rejected, job, failure)

    def settled(self, ends: Sequence[End], answers: Sequence[SettlementStatus]) -> None:
        for one in self._all:
            _tell(one.settled, ends, answers)

    def reclaimed(self, taken: Sequence[tuple[Expired, Reclaim]], done: int) -> None:
        for one in self._all if done else ():
            _tell(one.reclaimed, taken, done)

    def timed_out(self, jobs: int) -> None:
        for one in self._all if jobs else ():
            _tell(one.timed_out, jobs)

    def retried(self, kind: Kind) -> None:
        for one in self._all:
            _tell(one.retried, kind)

    def called(self, dependency: Dependency, seconds: float) -> None:
        for one in self._all:
            _tell(one.called, dependency, seconds)

    def reported(self, job: JobRow, outcome: Outcome) -> None:
        for one in self._all:
            _tell(one.reported, job, outcome)


def _tell(listener: Callable[..., None], *facts: Any) -> None:
    try:
        listener(*facts)
    except Exception:
        log.exception("observer.failed", callback=listener.__name__)

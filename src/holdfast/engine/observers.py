"""Report what this process has done to observers, such as metrics. There are none by default.

An observer is called after the fact, once for a whole group, on the thread that did the work. It can change nothing. What it
raises is logged and ignored, because a counter must not cost a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from holdfast.engine.ports import Reclaim, SettlementStatus
from holdfast.jobs.external import Outcome
from holdfast.jobs.job import Claimed, Enqueued, Expired, JobRow, NewJob, Settlement
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Failure
from holdfast.logging import Log

log = Log("holdfast.engine")

#: A settlement, and the job as it was claimed; None where only the lease is known.
End = tuple[Settlement, Claimed | None]


class Observer(Protocol):
    def enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Jobs were stored, except duplicates. In a caller's transaction they are stored if it commits."""

    def rejected(self, job: NewJob, failure: Failure) -> None:
        """A refused input was recorded."""

    def settled(self, ends: Sequence[End], answers: Sequence[SettlementStatus]) -> None:
        """The store has answered these settlements."""

    def reclaimed(self, taken: Sequence[tuple[Expired, Reclaim]], done: int) -> None:
        """*done* of these jobs were reclaimed; other workers settled the rest first."""

    def timed_out(self, jobs: int) -> None:
        """*jobs* jobs failed because their deadline passed."""

    def retried(self, kind: Kind) -> None:
        """A person let a job run again; *kind* is `manual_retry` or `redriven`."""

    def called(self, dependency: Dependency, seconds: float) -> None:
        """A call of a dependency has ended."""

    def reported(self, job: JobRow, outcome: Outcome) -> None:
        """A report ended or put back an external job; *job* is its row after that."""


class Observers:
    """All observers of a process."""

    __slots__ = ("_all", "any")

    def __init__(self) -> None:
        self._all: tuple[Observer, ...] = ()
        self.any = False  #: whether there is one; read before work that only observers need

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

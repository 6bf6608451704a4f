"""Jobs that run outside of Holdfast's workers, and the reports of their executors.

An external executor holds no lease, and the message with its job may arrive twice or never. A report must
therefore match the *generation* of the job, which grows with every manual retry. Each generation has one
recorded end (E5); a report for an earlier generation changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.jobs.moves import State
from holdfast.values.duration import Duration

#: How long an external worker holds a job if it does not ask for another time.
LEASE = timedelta(minutes=5)


class ReportStatus(StrEnum):
    """How the engine handled a report."""

    APPLIED = "applied"
    REPEATED = "repeated"  # the same report was applied before
    LATE = "late"  # the job had timed out or was cancelled: kept as a late result, no effect
    STALE = "stale"  # it is for another generation, or another worker holds the job: no effect


class ReportResult(NamedTuple):
    """How a report was handled, and the state and epoch of the job after it."""

    answer: ReportStatus
    state: State
    epoch: int


@dataclass(frozen=True, slots=True)
class Done:
    """The job succeeded with this result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed finally and becomes a dead letter with this *code*. *detail* is for operators."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job waits again for at least *delay*, and no attempt is counted.

    *retry* says that an attempt failed outside and will be repeated there; it is counted in the metrics of
    retries.
    """

    delay: Duration
    reason: str  #: one line for people; the event keeps it
    retry: bool = False


Outcome = Done | Failed | Requeue


def why_late(state: State, error_code: str | None) -> str | None:
    """Return "cancelled" or "timed_out" if the job ended that way, or None if a report ended it."""
    if state is State.CANCELLED:
        return "cancelled"
    return "timed_out" if error_code == "TIMEOUT" else None


def late_key(generation: int, last: tuple[int, str, int] | None) -> int:
    """Return the epoch under which a late result is stored.

    It is the epoch of the *last* attempt (epoch, outcome, generation) if that attempt was timed out or
    cancelled, otherwise minus the generation, because the job ran without a lease.
    """
    if last is not None and last[1] in ("timed_out", "cancelled") and last[2] == generation:
        return last[0]
    return -generation

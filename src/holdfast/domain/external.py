"""Jobs that are executed outside of our workers, and what those who execute them report.

An external executor holds no lease of ours: the message of its job may arrive twice, or never. What a
report must match is therefore the *generation* of the job, which grows when a person retries it: one recorded end for each
(E5), and whatever comes for one that is over changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.domain.duration import Duration
from holdfast.domain.moves import State

#: How long a job is its worker's that said nothing else.
LEASE = timedelta(minutes=5)


class ReportStatus(StrEnum):
    """What became of a report."""

    APPLIED = "applied"
    REPEATED = "repeated"  # it was known already
    LATE = "late"  # the job had ended by deadline or by a person: kept as a late result, no effect
    STALE = "stale"  # another generation, or another worker has it: no effect


class ReportResult(NamedTuple):
    answer: ReportStatus
    state: State
    epoch: int


@dataclass(frozen=True, slots=True)
class Done:
    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The end: a dead letter of this code. *detail* is for operators."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Requeue:
    """It waits again, for *delay* at least, and no attempt is counted. *retry*: it was tried and failed outside, and will be
    tried again there, which is counted among the retries."""

    delay: Duration
    reason: str  #: one line for people; the event keeps it
    retry: bool = False


Outcome = Done | Failed | Requeue


def why_late(state: State, error_code: str | None) -> str | None:
    """How the job ended, if it was not by a worker's report; None: it was."""
    if state is State.CANCELLED:
        return "cancelled"
    return "timed_out" if error_code == "TIMEOUT" else None


def late_key(generation: int, last: tuple[int, str, int] | None) -> int:
    """The epoch a late result is kept under: of the last attempt (epoch, outcome, generation) if that is what was ended,
    else minus the generation, for it ran under no lease of ours."""
    if last is not None and last[1] in ("timed_out", "cancelled") and last[2] == generation:
        return last[0]
    return -generation

"""Gates before a claim: each is asked about a lane and answers `Admit`, `Hold` or `Reject`.

A gate is a pure function of its request, so that the same gates run in production, in the simulator and in
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.jobs.job import Lane


@dataclass(frozen=True, slots=True)
class Admit:
    """The gate lets jobs of the lane run."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now: the jobs stay queued and no attempt is counted. *until* is None when the end is unknown."""

    until: datetime | None
    reason: str

    def __post_init__(self) -> None:
        if self.until is not None and (not isinstance(self.until, datetime) or self.until.tzinfo is None):
            raise UsageError(f"a hold lasts until {self.until!r}; give an aware datetime, or None")
        _check_reason(self.reason)


@dataclass(frozen=True, slots=True)
class Reject:
    """The job may never start: it fails with *reason*."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason(self.reason)


GateAnswer = Admit | Hold | Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """What a gate decides about: a lane at a moment. The other fields are set when it is about one job."""

    lane: Lane
    now: datetime  #: aware; the worker's estimate of the store's clock
    owner: str | None = None
    key: str | None = None
    attempt: int = 1  #: above 1 for a retry
    priority: int = 0


#: The type of a gate, also for plug-ins.
Gate = Callable[[GateRequest], GateAnswer]


class GateRefusal(NamedTuple):
    """The name of a gate that did not admit the request, and its answer."""

    gate: str
    answer: Hold | Reject


def first_refusal(gates: Iterable[tuple[str, Gate]], request: GateRequest) -> GateRefusal | None:
    """Ask the gates in order and return the first refusal, or None if all admit the request."""
    for name, gate in gates:
        answer = gate(request)
        if not isinstance(answer, Admit):
            return GateRefusal(name, answer)
    return None


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"the reason is {reason!r}; it is one line for people who ask why a job waits")

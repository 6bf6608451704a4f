"""Gates before a claim: each is asked about a lane and answers `Admit`, `Hold` or `Reject`; the answers explain themselves.

A gate is a pure function of what it is told, so that the same gates run in production, in the simulator and in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from holdfast.domain.job import Lane
from holdfast.errors import UsageError


@dataclass(frozen=True, slots=True)
class Admit:
    """Go on to the next gate."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now: the jobs stay queued and nothing is burnt. *until* None: nobody knows until when."""

    until: datetime | None
    reason: str

    def __post_init__(self) -> None:
        if self.until is not None and (not isinstance(self.until, datetime) or self.until.tzinfo is None):
            raise UsageError(f"a hold lasts until {self.until!r}; give an aware datetime, or None")
        _check_reason(self.reason)


@dataclass(frozen=True, slots=True)
class Reject:
    """Not ever: the job fails with *reason*."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason(self.reason)


GateAnswer = Admit | Hold | Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """What a gate is told: which lane wants to be claimed from, and when; about one job only where one is meant."""

    lane: Lane
    now: datetime  #: aware, of the store's clock as well as the worker knows it
    owner: str | None = None
    key: str | None = None
    attempt: int = 1  #: above 1 it is a retry
    priority: int = 0


#: A gate, as plug-ins write it too.
Gate = Callable[[GateRequest], GateAnswer]


class GateRefusal(NamedTuple):
    """The gate that did not admit, and what it said."""

    gate: str
    answer: Hold | Reject


def first_refusal(gates: Iterable[tuple[str, Gate]], asking: GateRequest) -> GateRefusal | None:
    """Ask one gate after the other; the first that does not admit decides. None: all did."""
    for name, gate in gates:
        answer = gate(asking)
        if not isinstance(answer, Admit):
            return GateRefusal(name, answer)
    return None


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"the reason is {reason!r}; it is one line for people who ask why a job waits")

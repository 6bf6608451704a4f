"""Operations: work on all jobs or dead letters that match a filter.

One call begins an operation, maintenance runs it in batches, and it can be cancelled. Its progress is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.resilience import pacing
from holdfast.resilience.pacing import Course, Pace, Phase

#: The slowest and fastest rate in jobs a second. A batch at a slower rate could end after the last `datetime`.
SLOWEST, FASTEST = 0.001, 100_000


class BatchAction(StrEnum):
    """What an operation does to each job or dead letter."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    RETRY = "retry"
    CANCEL = "cancel"
    REPLAY = "replay"  #: sends past events to a webhook again


#: The actions after which a job runs again, so that it may fail again. They may have a pace and a patch.
RUN_AGAIN = (BatchAction.REDRIVE, BatchAction.RETRY)
#: The actions that a filter selects jobs for. A replay is begun at its webhook.
BY_FILTER = (BatchAction.REDRIVE, BatchAction.DISCARD, BatchAction.RETRY, BatchAction.CANCEL)


class Progress(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  #: too many jobs failed again
    CANCELLED = "cancelled"
    FAILED = "failed"


class OperationBatch(NamedTuple):
    """What one batch of an operation did, and where the next one continues."""

    done: int
    skipped: Mapping[str, int]  #: how many could not be moved, by reason
    cursor: str | None
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationState:
    """What an operation remembers from one batch to the next, beside its totals. It is stored as JSON."""

    skipped: dict[str, int] = field(default_factory=dict)  #: how many were refused, by reason
    due: datetime | None = None  #: when the rate admits the next jobs
    is_last: bool = False  #: no job is left to be moved
    course: Course = field(default_factory=Course)
    #: Of an operation with a pace: the jobs that are being moved. They are stored before the first of them moves, so that the
    #: process that goes on after a crash moves and counts these.
    chosen: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()  #: the jobs that were moved and have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    action: BatchAction
    filter: dict[str, Any]  #: the keywords of `app.jobs` or `app.dead_letters`; for a replay, which events
    by: str
    options: dict[str, Any]  #: options of the verb: reason, to_queue, patch, canary, ramp_from, stop_above
    rate: float | None = None  #: jobs a second
    owner: str | None = None  #: the owner of the key that began it, if it is an owner's key
    progress: Progress = Progress.RUNNING
    matched: int = 0  #: how many matched at the beginning; 0 for a replay
    done: int = 0
    refused: int = 0  #: jobs that could not be moved: their state had changed, or their task refused them
    cursor: str | None = None
    epoch: int = (
        0  #: grows each time a process takes the operation, so that the process before cannot advance it
    )
    state: OperationState = field(default_factory=OperationState)
    error: str | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def pace(self) -> Pace | None:
        """How it waits for the outcome of the jobs that it moves. None: it does not."""
        if "stop_above" not in self.options:
            return None
        chosen = {name: self.options[name] for name in PACE if name in self.options}
        return Pace(rate=self.rate, **chosen)

    @property
    def phase(self) -> Phase | None:
        """Where an operation with a pace stands; None without a pace and after the end."""
        if self.pace is None or self.progress is not Progress.RUNNING:
            return None
        return pacing.phase(self.pace, self.state.course, is_last=self.state.is_last)

    @property
    def skipped(self) -> dict[str, int]:
        """How many jobs were refused, by reason."""
        return self.state.skipped

    @property
    def ended(self) -> int:
        """With a pace: how many of the jobs that were moved have ended."""
        return self.state.course.ended

    @property
    def failed_again(self) -> int:
        """With a pace: how many of the jobs that were moved have failed again."""
        return self.state.course.failed

    @property
    def current_rate(self) -> float | None:
        """How many jobs a second are moved now. None: as many as can be, or none because it waits for outcomes."""
        if self.pace is None:
            return self.rate if self.progress is Progress.RUNNING else None
        if self.phase in (Phase.RAMP, Phase.STEADY):
            return pacing.current_rate(self.pace, self.state.course)
        return None

    @property
    def next_at(self) -> datetime | None:
        """When the rate admits the next jobs. None: at once, or when others have ended."""
        return self.state.due if self.phase in (Phase.RAMP, Phase.STEADY) else None


#: The options of an operation that make its pace, beside its rate.
PACE = ("canary", "ramp_from", "stop_above")

"""Counts of jobs, bounded so that they can be read every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from holdfast.jobs.job import Lane

#: The window over which retries are counted, and the most rows of the event log that are read for it.
RECENT = timedelta(minutes=5)
RECENT_ROWS = 300


class LaneStats(NamedTuple):
    """Counts of one lane. *oldest* is how long its next job has been due."""

    waiting: int = 0
    active: int = 0
    oldest: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStats:
    """Counts of jobs.

    *waiting*, *delayed* and *dead_letters* stop at the requested bound, so the real number may be larger.
    """

    lines: Mapping[Lane, LaneStats] = field(default_factory=dict)  #: lanes with jobs that are due or running
    delayed: int = 0  #: due later
    #: how long the earliest delayed job has been due without being queued in its lane
    overdue: timedelta = timedelta()
    dead_letters: int = 0
    retried: int = 0  #: attempts after a job's first that ended within `RECENT`
    failed_retries: int = 0  #: those of them that failed

"""How many jobs there are, counted so that it can be asked every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from holdfast.domain.job import Lane

#: How far back retries are judged, and by how many rows of the event log at the most.
OF_LATE = timedelta(minutes=5)
ROWS_OF_LATE = 300


class LaneStats(NamedTuple):
    """One lane. *oldest*: how long its next job has been due."""

    waiting: int = 0
    active: int = 0
    oldest: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStats:
    """Numbers of jobs. *waiting*, *delayed* and *dead_letters* stop at the requested bound: the real number may be larger."""

    lines: Mapping[Lane, LaneStats] = field(default_factory=dict)  #: of lanes with jobs that are due or run
    delayed: int = 0  #: due later
    overdue: timedelta = (
        timedelta()
    )  #: for how long the earliest of those has been due without being let into line
    dead_letters: int = 0
    retried: int = 0  #: attempts after a job's first that ended within `OF_LATE`
    retried_in_vain: int = 0  #: those of them that failed

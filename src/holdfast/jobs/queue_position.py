"""The queue position of one job: facts beyond its row that explain why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.jobs.job import JobId, Lane
from holdfast.jobs.moves import Kind

#: Jobs ahead of a job are counted up to this number, because counting all of them takes long.
MOST_AHEAD = 10_000
#: Events up to this number record a move of a job; events above it do not.
LAST_MOVE = Kind.rejected


class Place(StrEnum):
    """Where a queued job is."""

    LINE = "line"  # due, and queued in its lane
    LATER = "later"  # due later, or due and about to be queued in its lane
    KEY = "key"  # waiting for another job with the same key


class Use(NamedTuple):
    """How much of a limit over all workers is in use."""

    running: int = 0  #: running jobs that count against it
    ahead: timedelta = timedelta()  #: how far the admitted starts are ahead of an even rate


class LastMove(NamedTuple):
    """The newest event that recorded a move of the job."""

    kind: str
    at: datetime
    attempt: int
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """Where a job stands in its lane, and what it may wait for. *now* is the time of the store's clock."""

    lane: Lane
    place: Place | None  #: None: the job is not waiting
    now: datetime
    ahead: int | None = None  #: jobs before it in its lane, at most `MOST_AHEAD`
    holder: JobId | None = None  #: another job that occupies its key
    key_slots: int = 1  #: how many jobs of its key may run at a time
    last: LastMove | None = None  #: None: the event was purged
    use: Mapping[str, Use] = field(default_factory=dict)  #: by limit, for the limits that were requested

"""The queue position of one job: what its row does not say, and what explains why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.domain.job import JobId, Lane
from holdfast.domain.moves import Kind

#: Those ahead of a job are counted up to this: nobody needs to know how many more, and counting them all takes long.
MOST_AHEAD = 10_000
#: Events up to this one move a job; the numbers above it only tell of it.
LAST_MOVE = Kind.rejected


class Place(StrEnum):
    """Where a queued job is."""

    LINE = "line"  # due, in the line of its lane
    LATER = "later"  # due later, or due and on its way into the line
    KEY = "key"  # another job of its key goes first


class Use(NamedTuple):
    """How much of a bound over all workers is in use (`Cap`)."""

    running: int = 0  #: jobs that were claimed under it and run
    ahead: timedelta = timedelta()  #: how far what was let through is ahead of an even flow


class LastMove(NamedTuple):
    """The newest event that moved the job, and what it said."""

    kind: str
    at: datetime
    attempt: int
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """*now* is the store's clock."""

    lane: Lane
    place: Place | None  #: None: it does not wait
    now: datetime
    ahead: int | None = None  #: jobs before it in its line, at most `MOST_AHEAD`
    holder: JobId | None = None  #: the other job that has its key, or one of them
    key_slots: int = 1  #: how many jobs of its key may run at a time
    last: LastMove | None = None  #: None: it was purged
    use: Mapping[str, Use] = field(default_factory=dict)  #: of the bounds that were asked about

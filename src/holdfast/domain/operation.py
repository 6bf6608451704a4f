"""Work on everything that matches a filter: begun by one call, done in batches by a duty, cancellable, on record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

#: How many jobs a second an operation may be told to do: one batch ends in the lifetime of its operator, and of a datetime.
SLOWEST, FASTEST = 0.001, 100_000


class Doing(StrEnum):
    """What is done to each job or dead letter."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    RETRY = "retry"
    CANCEL = "cancel"


class Progress(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    doing: Doing
    where: dict[str, Any]  #: the filter, by the keywords of `app.jobs` or `app.dead_letters`
    by: str
    options: dict[str, Any]  #: of the verb: reason, to_queue
    rate: float | None = None  #: jobs a second
    owner: str | None = None  #: of the key that began it, where it is an owner's
    progress: Progress = Progress.RUNNING
    matched: int = 0  #: when it began
    done: int = 0
    refused: int = 0  #: they had moved on meanwhile
    cursor: str | None = None
    epoch: int = 0  #: grows whenever it is taken: who had it before cannot advance it any more
    error: str | None = None
    created_at: datetime
    updated_at: datetime

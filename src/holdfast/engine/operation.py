"""Operations: work on all jobs or dead letters that match a filter.

One call begins an operation, maintenance runs it in batches, and it can be cancelled. Its progress is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

#: The slowest and fastest rate in jobs a second. A batch at a slower rate could end after the last `datetime`.
SLOWEST, FASTEST = 0.001, 100_000


class BatchAction(StrEnum):
    """What an operation does to each job or dead letter."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    RETRY = "retry"
    CANCEL = "cancel"
    REPLAY = "replay"  #: sends past events to a webhook again


#: The actions that a filter selects jobs for. A replay is begun at its webhook.
BY_FILTER = (BatchAction.REDRIVE, BatchAction.DISCARD, BatchAction.RETRY, BatchAction.CANCEL)


class Progress(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class OperationBatch(NamedTuple):
    """What one batch of an operation did, and where the next one continues."""

    done: int
    refused: int  #: jobs whose state had changed
    cursor: str | None
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    action: BatchAction
    filter: dict[str, Any]  #: the keywords of `app.jobs` or `app.dead_letters`; for a replay, which events
    by: str
    options: dict[str, Any]  #: options of the verb: reason, to_queue
    rate: float | None = None  #: jobs a second
    owner: str | None = None  #: the owner of the key that began it, if it is an owner's key
    progress: Progress = Progress.RUNNING
    matched: int = 0  #: how many matched at the beginning; 0 for a replay
    done: int = 0
    refused: int = 0  #: jobs whose state had changed meanwhile
    cursor: str | None = None
    epoch: int = (
        0  #: grows each time a process takes the operation, so that the process before cannot advance it
    )
    error: str | None = None
    created_at: datetime
    updated_at: datetime

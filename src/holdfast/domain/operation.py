"""Work on everything that matches a filter: begun by one call, done in batches by a duty, cancellable, on record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

#: How many jobs a second an operation may be told to do: one batch ends in the lifetime of its operator, and of a datetime.
SLOWEST, FASTEST = 0.001, 100_000


class OperationAction(StrEnum):
    """What is done to each job or dead letter."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    RETRY = "retry"
    CANCEL = "cancel"
    REPLAY = "replay"  #: of a webhook: events are sent to it again


#: What is done to everything that matches a filter; a replay is begun by its webhook.
BY_FILTER = (OperationAction.REDRIVE, OperationAction.DISCARD, OperationAction.RETRY, OperationAction.CANCEL)


class Progress(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class OperationBatch(NamedTuple):
    """What one turn of an operation did, and where the next one goes on."""

    done: int
    refused: int  #: they had moved on
    cursor: str | None
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    id: str
    action: OperationAction
    filter: dict[str, Any]  #: by the keywords of `app.jobs` or `app.dead_letters`; of a replay, which events
    by: str
    options: dict[str, Any]  #: of the verb: reason, to_queue
    rate: float | None = None  #: jobs a second
    owner: str | None = None  #: of the key that began it, where it is an owner's
    progress: Progress = Progress.RUNNING
    matched: int = 0  #: when it began; a replay counts nothing beforehand
    done: int = 0
    refused: int = 0  #: they had moved on meanwhile
    cursor: str | None = None
    epoch: int = 0  #: grows whenever it is taken: who had it before cannot advance it any more
    error: str | None = None
    created_at: datetime
    updated_at: datetime

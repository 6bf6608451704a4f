"""Holdfast: a durable job engine. Decorate a function, enqueue a call, and it is brought to a definite end."""

from holdfast.app import Holdfast
from holdfast.domain.backoff import exponential, fixed, polynomial, table
from holdfast.domain.job import Attempt, DeadLetter, Event, JobRow, LateResult
from holdfast.domain.moves import MOVES, State
from holdfast.domain.policy import Retry
from holdfast.engine.context import Job, current_job
from holdfast.engine.ports import Moved, Page, Retention, Transaction
from holdfast.engine.tasks import Handle, Task
from holdfast.errors import (
    Conflict,
    Fatal,
    HoldfastError,
    JobFailed,
    LeaseLost,
    PayloadError,
    Retryable,
    SchemaMismatch,
    Snooze,
    StoreError,
    StoreUnavailable,
    UnknownJob,
    UnknownTask,
    UsageError,
)

__version__ = "0.1.0"

__all__ = [
    "MOVES",
    "Attempt",
    "Conflict",
    "DeadLetter",
    "Event",
    "Fatal",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobRow",
    "LateResult",
    "LeaseLost",
    "Moved",
    "Page",
    "PayloadError",
    "Retention",
    "Retry",
    "Retryable",
    "SchemaMismatch",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "Transaction",
    "UnknownJob",
    "UnknownTask",
    "UsageError",
    "current_job",
    "exponential",
    "fixed",
    "polynomial",
    "table",
]

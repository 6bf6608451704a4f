"""Holdfast: a durable job engine. Decorate a function, enqueue a call, and it is brought to a definite end."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.domain.backoff import exponential, fixed, polynomial, table
    from holdfast.domain.job import Attempt, DeadLetter, Event, JobRow, LateResult
    from holdfast.domain.moves import MOVES, State
    from holdfast.domain.policy import Retry
    from holdfast.engine.context import THIS_JOB, Job, current_job
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
    "THIS_JOB",
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

#: Public name → the module it is in. Imported when it is asked for: the pytest plug-in is inside this package and
#: loads in every pytest run, also in those that never use Holdfast.
_HOMES = {
    "Holdfast": "holdfast.app",
    "exponential": "holdfast.domain.backoff",
    "fixed": "holdfast.domain.backoff",
    "polynomial": "holdfast.domain.backoff",
    "table": "holdfast.domain.backoff",
    "Attempt": "holdfast.domain.job",
    "DeadLetter": "holdfast.domain.job",
    "Event": "holdfast.domain.job",
    "JobRow": "holdfast.domain.job",
    "LateResult": "holdfast.domain.job",
    "MOVES": "holdfast.domain.moves",
    "State": "holdfast.domain.moves",
    "Retry": "holdfast.domain.policy",
    "Job": "holdfast.engine.context",
    "THIS_JOB": "holdfast.engine.context",
    "current_job": "holdfast.engine.context",
    "Moved": "holdfast.engine.ports",
    "Page": "holdfast.engine.ports",
    "Retention": "holdfast.engine.ports",
    "Transaction": "holdfast.engine.ports",
    "Handle": "holdfast.engine.tasks",
    "Task": "holdfast.engine.tasks",
    "Conflict": "holdfast.errors",
    "Fatal": "holdfast.errors",
    "HoldfastError": "holdfast.errors",
    "JobFailed": "holdfast.errors",
    "LeaseLost": "holdfast.errors",
    "PayloadError": "holdfast.errors",
    "Retryable": "holdfast.errors",
    "SchemaMismatch": "holdfast.errors",
    "Snooze": "holdfast.errors",
    "StoreError": "holdfast.errors",
    "StoreUnavailable": "holdfast.errors",
    "UnknownJob": "holdfast.errors",
    "UnknownTask": "holdfast.errors",
    "UsageError": "holdfast.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value

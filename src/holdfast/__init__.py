"""Holdfast: a durable job engine. Decorate a function, enqueue a call, and it is brought to a definite end."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.domain.backoff import exponential, fixed, polynomial, table
    from holdfast.domain.breaker import BreakerPolicy
    from holdfast.domain.budget import BudgetPolicy
    from holdfast.domain.external import Done, Failed, ReportResult, ReportStatus, Requeue
    from holdfast.domain.external_task import ExternalTask
    from holdfast.domain.gates import Admit, GateRequest, Hold, Reject
    from holdfast.domain.job import (
        Artifact,
        Attempt,
        DeadLetter,
        Event,
        JobRow,
        LateResult,
        StuckJob,
        WorkerRow,
    )
    from holdfast.domain.limiter import LimiterPolicy
    from holdfast.domain.limits import Limit, Limits
    from holdfast.domain.moves import MOVES, State
    from holdfast.domain.notice import Notice
    from holdfast.domain.outbox import Delivered, Message, Undelivered
    from holdfast.domain.policy import Retry
    from holdfast.domain.schedule import Cron, Every
    from holdfast.domain.windows import Window, Windows
    from holdfast.engine.context import THIS_JOB, DependencyCall, Job, current_job
    from holdfast.engine.ports import MoveNotice, Page, Retention, Transaction
    from holdfast.engine.tasks import Handle, Task
    from holdfast.errors import (
        Conflict,
        DependencyHeld,
        Fatal,
        Forbidden,
        HoldfastError,
        JobFailed,
        LeaseLost,
        PayloadError,
        ResultExpired,
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
    "Admit",
    "Artifact",
    "Attempt",
    "BreakerPolicy",
    "BudgetPolicy",
    "Conflict",
    "Cron",
    "DeadLetter",
    "Delivered",
    "DependencyCall",
    "DependencyHeld",
    "Done",
    "Event",
    "Every",
    "ExternalTask",
    "Failed",
    "Fatal",
    "Forbidden",
    "GateRequest",
    "Handle",
    "Hold",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobRow",
    "LateResult",
    "LeaseLost",
    "Limit",
    "LimiterPolicy",
    "Limits",
    "Message",
    "MoveNotice",
    "Notice",
    "Page",
    "PayloadError",
    "Reject",
    "ReportResult",
    "ReportStatus",
    "Requeue",
    "ResultExpired",
    "Retention",
    "Retry",
    "Retryable",
    "SchemaMismatch",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "StuckJob",
    "Task",
    "Transaction",
    "Undelivered",
    "UnknownJob",
    "UnknownTask",
    "UsageError",
    "Window",
    "Windows",
    "WorkerRow",
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
    "BreakerPolicy": "holdfast.domain.breaker",
    "BudgetPolicy": "holdfast.domain.budget",
    "ExternalTask": "holdfast.domain.external_task",
    "Admit": "holdfast.domain.gates",
    "GateRequest": "holdfast.domain.gates",
    "Hold": "holdfast.domain.gates",
    "Reject": "holdfast.domain.gates",
    "Artifact": "holdfast.domain.job",
    "Attempt": "holdfast.domain.job",
    "DeadLetter": "holdfast.domain.job",
    "Event": "holdfast.domain.job",
    "JobRow": "holdfast.domain.job",
    "LateResult": "holdfast.domain.job",
    "StuckJob": "holdfast.domain.job",
    "WorkerRow": "holdfast.domain.job",
    "LimiterPolicy": "holdfast.domain.limiter",
    "Limit": "holdfast.domain.limits",
    "Limits": "holdfast.domain.limits",
    "MOVES": "holdfast.domain.moves",
    "State": "holdfast.domain.moves",
    "Notice": "holdfast.domain.notice",
    "Delivered": "holdfast.domain.outbox",
    "Message": "holdfast.domain.outbox",
    "Undelivered": "holdfast.domain.outbox",
    "Done": "holdfast.domain.external",
    "Failed": "holdfast.domain.external",
    "Requeue": "holdfast.domain.external",
    "ReportStatus": "holdfast.domain.external",
    "ReportResult": "holdfast.domain.external",
    "Retry": "holdfast.domain.policy",
    "Cron": "holdfast.domain.schedule",
    "Every": "holdfast.domain.schedule",
    "Window": "holdfast.domain.windows",
    "Windows": "holdfast.domain.windows",
    "DependencyCall": "holdfast.engine.context",
    "Job": "holdfast.engine.context",
    "THIS_JOB": "holdfast.engine.context",
    "current_job": "holdfast.engine.context",
    "MoveNotice": "holdfast.engine.ports",
    "Page": "holdfast.engine.ports",
    "Retention": "holdfast.engine.ports",
    "Transaction": "holdfast.engine.ports",
    "Handle": "holdfast.engine.tasks",
    "Task": "holdfast.engine.tasks",
    "Conflict": "holdfast.errors",
    "DependencyHeld": "holdfast.errors",
    "Fatal": "holdfast.errors",
    "Forbidden": "holdfast.errors",
    "HoldfastError": "holdfast.errors",
    "JobFailed": "holdfast.errors",
    "LeaseLost": "holdfast.errors",
    "PayloadError": "holdfast.errors",
    "ResultExpired": "holdfast.errors",
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

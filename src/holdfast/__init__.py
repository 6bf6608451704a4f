"""Holdfast: a durable job engine. Decorate a function, enqueue a call, and it is brought to a definite end.

More names are in `holdfast.policies`, `holdfast.records`, `holdfast.external` and `holdfast.plugins`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.engine.context import THIS_JOB, Job, current_job
    from holdfast.engine.job_queries import Page
    from holdfast.errors import (
        Conflict,
        DependencyHeld,
        Fatal,
        Forbidden,
        HoldfastError,
        JobFailed,
        LeaseLost,
        PayloadError,
        QuotaExceeded,
        ResultExpired,
        Retryable,
        Snooze,
        StoreError,
        StoreUnavailable,
        UnknownJob,
        UnknownTask,
        UsageError,
    )
    from holdfast.jobs.job import JobRow
    from holdfast.jobs.moves import State
    from holdfast.jobs.retention import Retention
    from holdfast.jobs.schedule import Cron, Every
    from holdfast.resilience.limits import Limits
    from holdfast.resilience.policy import Retry
    from holdfast.tasks.task import Handle, Task
    from holdfast.wiring import new_job_id

__version__ = "0.1.0"

__all__ = [
    "THIS_JOB",
    "Conflict",
    "Cron",
    "DependencyHeld",
    "Every",
    "Fatal",
    "Forbidden",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobFailed",
    "JobRow",
    "LeaseLost",
    "Limits",
    "Page",
    "PayloadError",
    "QuotaExceeded",
    "ResultExpired",
    "Retention",
    "Retry",
    "Retryable",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "UnknownJob",
    "UnknownTask",
    "UsageError",
    "current_job",
    "new_job_id",
]

#: Public name → the module it is in. Imported when it is asked for: the pytest plug-in is inside this package and
#: loads in every pytest run, also in those that never use Holdfast.
_HOMES = dict.fromkeys(__all__, "holdfast.errors") | {
    "Cron": "holdfast.jobs.schedule",
    "Every": "holdfast.jobs.schedule",
    "Handle": "holdfast.tasks.task",
    "Holdfast": "holdfast.app",
    "Job": "holdfast.engine.context",
    "JobRow": "holdfast.jobs.job",
    "Limits": "holdfast.resilience.limits",
    "Page": "holdfast.engine.job_queries",
    "Retention": "holdfast.jobs.retention",
    "Retry": "holdfast.resilience.policy",
    "State": "holdfast.jobs.moves",
    "THIS_JOB": "holdfast.engine.context",
    "Task": "holdfast.tasks.task",
    "current_job": "holdfast.engine.context",
    "new_job_id": "holdfast.wiring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value

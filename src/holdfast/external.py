"""External tasks: what their executors are sent, and what they report (`app.external`)."""

from holdfast.jobs.external import Done, Failed, ReportResult, ReportStatus, Requeue
from holdfast.jobs.external_task import ExternalTask

__all__ = ["Done", "ExternalTask", "Failed", "ReportResult", "ReportStatus", "Requeue"]

"""Events as CloudEvents 1.0, in structured JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.jobs.job import Event

SOURCE = "/holdfast"
MEDIA_TYPE = "application/cloudevents+json"
#: The type of an event about a job is `holdfast.job.complete`, of any other `holdfast.paused`.
_JOB, _ALL = "holdfast.job.", "holdfast."


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Facts about the job of an event."""

    task: str | None
    queue: str | None
    owner: str | None


#: The subject of an event whose job was removed.
GONE = Subject(task=None, queue=None, owner=None)


def of_event(event: Event, subject: Subject, source: str = SOURCE) -> dict[str, Any]:
    """Return *event* as a CloudEvent. Its `sequence` grows with every event; its `id` is the same in every delivery."""
    data = {
        "job_id": event.job_id or None,
        "task": subject.task,
        "queue": subject.queue,
        "owner": subject.owner,
        "event": event.kind,
        "attempt": event.attempt,
        "epoch": event.epoch,
        "meta": event.meta,
    }
    about = {"subject": event.job_id, "partitionkey": event.job_id} if event.job_id else {}
    return {
        "specversion": "1.0",
        "id": str(event.id),
        "source": source,
        "type": f"{_JOB if event.job_id else _ALL}{event.kind}",
        "time": _moment(event.at),
        "datacontenttype": "application/json",
        "sequence": f"{event.id:020d}",  # compared as text, so all have one length
        **about,
        "data": data,
    }


def of_test(number: str, at: datetime, webhook_id: str, source: str = SOURCE) -> dict[str, Any]:
    """Return the CloudEvent of a test message."""
    return {
        "specversion": "1.0",
        "id": number,
        "source": source,
        "type": "holdfast.webhook.test",
        "subject": webhook_id,
        "time": _moment(at),
        "datacontenttype": "application/json",
        "data": {"message": "This is a test. Nothing happened."},
    }


def _moment(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")

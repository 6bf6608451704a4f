"""An event in the envelope that others know: CloudEvents 1.0, as structured JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.domain.job import Event

SOURCE = "/holdfast"
MEDIA_TYPE = "application/cloudevents+json"
#: What happened to a job is `holdfast.job.complete`, what happened to all `holdfast.paused`.
_JOB, _ALL = "holdfast.job.", "holdfast."


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is worth knowing about the job of an event, beside the event."""

    task: str | None
    queue: str | None
    owner: str | None


#: Of a job that was removed.
GONE = Subject(task=None, queue=None, owner=None)


def of_event(event: Event, subject: Subject, source: str = SOURCE) -> dict[str, Any]:
    """*sequence* grows with every event; the same event has the same *id* wherever and however often it is told."""
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
        "sequence": f"{event.id:020d}",  # compared as text, so all are of one length
        **about,
        "data": data,
    }


def of_test(number: str, at: datetime, webhook_id: str, source: str = SOURCE) -> dict[str, Any]:
    """What a test send tells: nothing happened."""
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

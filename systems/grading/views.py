"""The JSON views of submissions, messages and events, with the names of the source document."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from holdfast import JobRow, State
from holdfast.records import Event, LateResult
from systems.grading.codes import message_for
from systems.grading.messages import request_id

STATUS = {
    State.QUEUED: "PENDING",
    State.PROCESSING: "PROCESSING",
    State.COMPLETE: "COMPLETED",
    State.FAILED: "FAILED",
    State.CANCELLED: "FAILED",
}
#: How many characters of a text a list shows.
_EXCERPT = 200
#: The status of a submission after each event of the engine. Other events are not shown.
_EVENTS = {
    "queued": "PENDING",
    "released": "PENDING",
    "reclaimed": "PENDING",
    "manual_retry": "PENDING",
    "redriven": "PENDING",
    "processing": "PROCESSING",
    "complete": "COMPLETED",
    "failed": "FAILED",
    "timed_out": "FAILED",
    "cancelled": "FAILED",
    "late_result": None,
    "stale_write": None,
}

#: Events by a worker or its callbacks. The reason of other events was given by a person and is not shown.
_WITH_REASON = ("released", "stale_write")


def show(row: JobRow, late: list[LateResult] | None = None) -> dict[str, Any]:
    """Return the view of a submission, with its late results."""
    reason = "CANCELLED" if row.state is State.CANCELLED else row.error_code
    return {
        "submissionId": row.id,
        "requestId": request_id(row.id, row.generation),
        "skill": row.payload.get("skill"),
        "status": STATUS[row.state],
        "failureReason": reason,
        "message": None if reason is None else message_for(reason),
        "createdAt": _moment(row.created_at),
        "deadlineAt": _moment(row.deadline_at),
        "finishedAt": _moment(row.finished_at),
        "result": row.result,
        "lateResults": [show_late(one) for one in late or []],
    }


def show_listed(row: JobRow, late: list[LateResult]) -> dict[str, Any]:
    """Return the view of a submission in a list: with what was submitted, in short."""
    text, audio = row.payload.get("text"), row.payload.get("audio") or {}
    excerpt = " ".join(text[:_EXCERPT].split()) if isinstance(text, str) else None
    return show(row, late) | {"excerpt": excerpt, "audioBytes": audio.get("size")}


def show_late(late: LateResult) -> dict[str, Any]:
    """Return the view of a late result."""
    return {"isLate": True, "receivedAt": _moment(late.at), "outcome": late.outcome, "result": late.result}


def show_event(event: Event) -> dict[str, Any] | None:
    """Return the view of an event, or None if the event does not concern the submission's caller."""
    if event.kind not in _EVENTS:
        return None
    view: dict[str, Any] = {"event": event.kind, "submissionId": event.job_id, "at": _moment(event.at)}
    if (status := _EVENTS[event.kind]) is not None:
        view["status"] = status
    if event.kind == "timed_out":
        view["failureReason"] = "TIMEOUT"
    elif event.meta.get("error_code"):
        view["failureReason"] = event.meta["error_code"]
    if event.kind == "late_result":
        view["isLate"] = True
    if event.kind in _WITH_REASON and event.meta.get("reason"):
        view["why"] = event.meta["reason"]
    return view


def show_message(message: Any) -> dict[str, Any]:
    """Return the view of a message of the outbox, with the names of G1."""
    status = {"waiting": "pending", "published": "published", "parked": "failed"}[str(message.state)]
    return {
        "id": message.id,
        "aggregate_id": message.key,
        "message_type": message.topic,
        "payload": _request_in(message.body),
        "status": status,
        "created_at": _moment(message.created_at),
        "processed_at": _moment(message.settled_at),
        "retry_count": message.tries + message.unreached,
        "error_message": message.error,
    }


def _request_in(body: bytes) -> Any:
    try:
        return json.loads(body)[1]["request"]
    except (ValueError, LookupError, TypeError):
        return None


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")

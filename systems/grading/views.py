"""Submissions, messages and events as callers see them: the names and the casing of the source document."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from holdfast import Event, JobRow, LateResult, State
from systems.grading.codes import words_for
from systems.grading.messages import request_id

STATUS = {
    State.QUEUED: "PENDING",
    State.PROCESSING: "PROCESSING",
    State.COMPLETE: "COMPLETED",
    State.FAILED: "FAILED",
    State.CANCELLED: "FAILED",
}
#: What an event of the engine means for a submission. Events that are not here are not told.
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

#: Events of the worker and its callbacks; the reason of the others was given by a person and is not shown.
_WITH_REASON = ("released", "stale_write")


def show(row: JobRow, late: list[LateResult] | None = None) -> dict[str, Any]:
    reason = "CANCELLED" if row.state is State.CANCELLED else row.error_code
    return {
        "submissionId": row.id,
        "requestId": request_id(row.id, row.generation),
        "skill": row.payload.get("skill"),
        "status": STATUS[row.state],
        "failureReason": reason,
        "message": None if reason is None else words_for(reason),
        "createdAt": _moment(row.created_at),
        "deadlineAt": _moment(row.deadline_at),
        "finishedAt": _moment(row.finished_at),
        "result": row.result,
        "lateResults": [show_late(one) for one in late or []],
    }


def show_late(late: LateResult) -> dict[str, Any]:
    return {"isLate": True, "receivedAt": _moment(late.at), "outcome": late.outcome, "result": late.result}


def show_event(event: Event) -> dict[str, Any] | None:
    """None for an event that says nothing about a submission."""
    if event.kind not in _EVENTS:
        return None
    told: dict[str, Any] = {"event": event.kind, "submissionId": event.job_id, "at": _moment(event.at)}
    if (status := _EVENTS[event.kind]) is not None:
        told["status"] = status
    if event.kind == "timed_out":
        told["failureReason"] = "TIMEOUT"
    elif event.meta.get("error_code"):
        told["failureReason"] = event.meta["error_code"]
    if event.kind == "late_result":
        told["isLate"] = True
    if event.kind in _WITH_REASON and event.meta.get("reason"):
        told["why"] = event.meta["reason"]
    return told


def show_message(message: Any) -> dict[str, Any]:
    """A message of the outbox under the names of G1."""
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

"""A screenshot as its owner sees it, in the words of the source document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import Event, JobRow, State
from systems.common.rows import failure_before
from systems.screenshots.codes import CODES, Code, message
from systems.screenshots.promises import PROMISED_PRIORITY

STATUS = {
    State.QUEUED: "QUEUED",
    State.PROCESSING: "PROCESSING",
    State.COMPLETE: "COMPLETED",
    State.FAILED: "FAILED",
    State.CANCELLED: "CANCELLED",
}
PRIORITY = {PROMISED_PRIORITY: "HIGH", 10: "HIGH", 0: "NORMAL", -10: "LOW"}
_HOPELESS = frozenset(code.value for code, known in CODES.items() if not known.again)
#: What people do with a job, as the trail tells it.
AUDITED = {
    "queued": "REQUESTED",
    "manual_retry": "MANUAL_RETRY",
    "redriven": "REDRIVEN",
    "cancelled": "CANCELLED",
    "discarded": "DISCARDED",
    "retry": "AUTOMATIC_RETRY",
    "reclaimed": "RECOVERED",
    "failed": "FAILED",  # only where a person ended it: a stuck one that had no attempt left
    "breached": "SLA_BREACHED",
    "compensated": "COMPENSATED",
}


def show(row: JobRow) -> dict[str, Any]:
    """Return the fields of the source document.

    *nextRetryAt* is set while the job waits for an automatic retry, *errorCode* when it has failed, *lastFailureReason* when it
    has failed or is tried again by itself, *lockedBy* and *lockedAt* while a worker has it. *isRetryable* is true until the job has
    failed for a reason that no further attempt would change; a retry by hand is accepted all the same.
    """
    payload = row.payload if isinstance(row.payload, dict) else {}
    shot: dict[str, Any] = payload.get("shot") or {}
    code, line = _said(row)
    waits = row.state is State.QUEUED and row.attempt > 0
    retries = max(row.attempt - 1, 0) if row.state is not State.QUEUED else row.attempt
    done = row.state is State.COMPLETE and row.expired_at is None
    found: dict[str, Any] = row.result if done and isinstance(row.result, dict) else {}
    return {
        "jobId": row.id,
        "type": row.task,
        "status": STATUS[row.state],
        "url": shot.get("url", ""),
        "format": shot.get("format", "png"),
        "priority": PRIORITY.get(row.priority, str(row.priority)),
        "retryCount": retries,
        "maxRetries": row.max_attempts - 1,
        "manualRetryCount": row.manual_retry_count,
        "retryType": row.retry_type,
        "isRetryable": row.state is not State.FAILED or _may_help(code),
        "nextRetryAt": _moment(row.run_at) if waits else None,
        "lastFailureReason": line or None,
        "lockedBy": row.leased_by,
        "lockedAt": _moment(row.last_attempt_at) if row.leased_by is not None else None,
        "errorCode": code if row.state is State.FAILED else None,
        "createdAt": _moment(row.created_at),
        "startedAt": _moment(row.started_at),
        "completedAt": _moment(row.finished_at),
        "imageUrl": f"/api/v1/screenshots/{row.id}/image" if done else None,
        "image": {name: value for name, value in found.items() if name != "file"} or None,
    }


def audit(row: JobRow, events: list[Event]) -> list[dict[str, Any]]:
    """Who did what with it, and when; oldest first (S8)."""
    unsaid = {"queued": row.owner} | dict.fromkeys(
        ("retry", "reclaimed", "breached", "compensated"), "system"
    )
    return [
        {
            "at": _moment(event.at),
            "action": AUDITED[event.kind],
            "by": event.meta.get("by") or unsaid.get(event.kind),
            "attempt": event.attempt,
            "reason": _reason(event.meta),
        }
        for event in events
        if event.kind in AUDITED and (event.kind != "failed" or "by" in event.meta)
    ]


def _reason(meta: dict[str, Any]) -> str | None:
    """A code of ours or the engine's, what a person said, or which promise it was."""
    return meta.get("error_code") or meta.get("reason") or meta.get("name")


def _may_help(code: str | None) -> bool:
    """Whether another attempt may go better. What failed by a code of the engine did so for reasons of the place, not the page."""
    return code not in _HOPELESS


def _said(row: JobRow) -> tuple[str | None, str]:
    if row.state is State.FAILED:
        return row.error_code, _line(row.error_code, row.error_message, final=True)
    failure = failure_before(row)
    if failure is None:
        return None, ""
    code = failure.get("code")
    return code, _line(code, failure.get("message"), final=False)


def _line(code: str | None, said: str | None, *, final: bool) -> str:
    """Ours for our own codes, the engine's for its own."""
    if code in {known.value for known in CODES}:
        ours = Code(code)
        return said if said and final and not CODES[ours].again else message(ours, final=final)
    return said or ""


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")

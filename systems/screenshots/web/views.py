"""The JSON form of a screenshot, with the source document's names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import JobRow, State
from holdfast.records import Event
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
#: The event kinds in the audit trail, and their names there.
AUDITED = {
    "queued": "REQUESTED",
    "manual_retry": "MANUAL_RETRY",
    "redriven": "REDRIVEN",
    "cancelled": "CANCELLED",
    "discarded": "DISCARDED",
    "retry": "AUTOMATIC_RETRY",
    "reclaimed": "RECOVERED",
    "failed": "FAILED",  # only when a person ended a stuck job that had no attempt left
    "breached": "SLA_BREACHED",
    "compensated": "COMPENSATED",
}


def show(row: JobRow) -> dict[str, Any]:
    """Return a screenshot with the fields of the source document.

    `nextRetryAt` is set while the job waits for an automatic retry, `errorCode` when it has failed,
    `lastFailureReason` when it has failed or will be retried, `lockedBy` and `lockedAt` while a worker runs
    it. `isRetryable` is false when the job has failed for a reason that no further attempt would change; a
    manual retry is accepted all the same.
    """
    payload = row.payload if isinstance(row.payload, dict) else {}
    shot: dict[str, Any] = payload.get("shot") or {}
    code, line = _last_failure(row)
    is_waiting = row.state is State.QUEUED and row.attempt > 0
    retries = max(row.attempt - 1, 0) if row.state is not State.QUEUED else row.attempt
    done = row.state is State.COMPLETE and row.expired_at is None
    result: dict[str, Any] = row.result if done and isinstance(row.result, dict) else {}
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
        "isRetryable": row.state is not State.FAILED or _is_worth_retrying(code),
        "nextRetryAt": _moment(row.run_at) if is_waiting else None,
        "lastFailureReason": line or None,
        "lockedBy": row.leased_by,
        "lockedAt": _moment(row.last_attempt_at) if row.leased_by is not None else None,
        "errorCode": code if row.state is State.FAILED else None,
        "createdAt": _moment(row.created_at),
        "startedAt": _moment(row.started_at),
        "completedAt": _moment(row.finished_at),
        "imageUrl": f"/api/v1/screenshots/{row.id}/image" if done else None,
        "image": {name: value for name, value in result.items() if name != "file"} or None,
    }


def audit(row: JobRow, events: list[Event]) -> list[dict[str, Any]]:
    """Return the audit trail: who did what with the job, and when, oldest first (S8)."""
    default_author = {"queued": row.owner} | dict.fromkeys(
        ("retry", "reclaimed", "breached", "compensated"), "system"
    )
    return [
        {
            "at": _moment(event.at),
            "action": AUDITED[event.kind],
            "by": event.meta.get("by") or default_author.get(event.kind),
            "attempt": event.attempt,
            "reason": _reason(event.meta),
        }
        for event in events
        if event.kind in AUDITED and (event.kind != "failed" or "by" in event.meta)
    ]


def _reason(meta: dict[str, Any]) -> str | None:
    """Return the error code, the reason that a person gave, or the name of the promise."""
    return meta.get("error_code") or meta.get("reason") or meta.get("name")


def _is_worth_retrying(code: str | None) -> bool:
    """Return whether another attempt may succeed.

    That is so for all codes of the engine, which are not about the page.
    """
    return code not in _HOPELESS


def _last_failure(row: JobRow) -> tuple[str | None, str]:
    if row.state is State.FAILED:
        return row.error_code, _line(row.error_code, row.error_message, final=True)
    failure = failure_before(row)
    if failure is None:
        return None, ""
    code = failure.get("code")
    return code, _line(code, failure.get("message"), final=False)


def _line(code: str | None, given: str | None, *, final: bool) -> str:
    """Return the message for a code: ours for our codes, the *given* one for codes of the engine."""
    if code in {known.value for known in CODES}:
        known_code = Code(code)
        return given if given and final and not CODES[known_code].again else message(known_code, final=final)
    return given or ""


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")

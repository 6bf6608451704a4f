"""A job as its owner sees it: in the words of the ten codes, with what can be done about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import JobRow, State
from systems.common.rows import failure_before
from systems.converter.codes import Code, message, public_code
from systems.converter.tasks import Converter

_PRIORITIES = {10: "high", 0: "normal", -10: "low"}
#: Name in one of the two source documents → the same here: programs written against them find what they look for.
DOCUMENTED = {
    "status": "state",
    "attempt_count": "attempt",
    "attemptCount": "attempt",
    "lastAttemptAt": "last_attempt_at",
    "retryAfter": "retry_after",
    "queuedAt": "queued_at",
    "result_path": "download",
}


def show(row: JobRow, converter: Converter, *, now: datetime | None = None) -> dict[str, Any]:
    """*error_code* and *error_message* are set only when it has failed; *message* is the line for people at any time."""
    payload = row.payload if isinstance(row.payload, dict) else {}
    has_source = converter.source(row.id).exists()
    has_result = row.state is State.COMPLETE and row.expired_at is None and converter.result(row.id).exists()
    code, line = _said(row)
    failed = row.state is State.FAILED
    shown = {
        "id": row.id,
        "name": payload.get("name", ""),
        "mapping": payload.get("mapping", ""),
        "size": payload.get("size", 0),
        "priority": _PRIORITIES.get(row.priority, str(row.priority)),
        "sha256": payload.get("sha256", ""),
        "state": row.state.value,
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "manual_retry_count": row.manual_retry_count,
        "created_at": _moment(row.created_at),
        "queued_at": _moment(row.queued_at),
        "started_at": _moment(row.started_at),
        "finished_at": _moment(row.finished_at),
        "failed_at": _moment(row.failed_at),
        "last_attempt_at": _moment(row.last_attempt_at),
        "updated_at": _moment(row.updated_at),
        **_next_attempt(row, now or datetime.now(UTC)),
        "error_code": code.value if failed and code else None,
        "error_message": line if failed else None,
        "message": line
        if has_result or row.state is not State.COMPLETE
        else message(Code.EXPIRED, final=True),
        "has_source": has_source,
        "has_result": has_result,
        "can_retry": has_source and row.state in (State.FAILED, State.CANCELLED),
        "can_cancel": row.state in (State.QUEUED, State.PROCESSING),
        "refused": was_refused(row),
        "download": f"/api/jobs/{row.id}/download" if has_result else None,
    }
    return shown | {name: shown[ours] for name, ours in DOCUMENTED.items()}


def was_refused(row: JobRow) -> bool:
    """Return whether this upload was not accepted: it has no digest, because it was never stored."""
    return row.state is State.FAILED and not (isinstance(row.payload, dict) and row.payload.get("sha256"))


def _said(row: JobRow) -> tuple[Code | None, str]:
    """The public code of what went wrong last, and its line: of a job that has failed, or will be tried again."""
    if row.state is State.FAILED:
        code = public_code(row.error_code)
        # Words for an inner code are the engine's, for those who run it.
        ours = row.error_message if row.error_code == code and row.error_message else None
        return code, ours or message(code, final=True)
    failure = failure_before(row)
    if failure is None:
        return None, ""
    code = public_code(failure.get("code"))
    return code, message(code, final=False)


def _next_attempt(row: JobRow, now: datetime) -> dict[str, Any]:
    """Return when a failed job is due again, and how long that is: the reader's clock may be wrong."""
    if row.state is not State.QUEUED or row.run_at <= now:
        return {"retry_after": None, "retry_in_ms": None}
    wait = (row.run_at - now).total_seconds()
    return {"retry_after": _moment(row.run_at), "retry_in_ms": round(wait * 1000)}


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")

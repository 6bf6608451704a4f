"""The JSON view of a job: its state, the message of one of the ten codes, and the possible actions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import JobRow, State
from systems.common.rows import failure_before
from systems.converter.codes import Code, message, public_code
from systems.converter.tasks import Converter

_PRIORITIES = {10: "high", 0: "normal", -10: "low"}
#: Name in one of the two source documents → our name. The view has both, for programs written against the
#: documents.
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
    """Return the view of a job.

    `error_code` and `error_message` are set only if the job has failed. `message` is the line for people in
    any state.
    """
    payload = row.payload if isinstance(row.payload, dict) else {}
    has_source = converter.source(row.id).exists()
    has_result = row.state is State.COMPLETE and row.expired_at is None and converter.result(row.id).exists()
    code, line = _failure_of(row)
    failed = row.state is State.FAILED
    view = {
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
        "can_remove": row.state not in (State.QUEUED, State.PROCESSING),
        "refused": was_refused(row),
        "download": f"/api/jobs/{row.id}/download" if has_result else None,
    }
    return view | {name: view[ours] for name, ours in DOCUMENTED.items()}


def was_refused(row: JobRow) -> bool:
    """Return whether the upload was not accepted.

    Such a job has no digest, since its file was never stored.
    """
    return row.state is State.FAILED and not (isinstance(row.payload, dict) and row.payload.get("sha256"))


def _failure_of(row: JobRow) -> tuple[Code | None, str]:
    """Return the code and message of the failure that ended the job or that it is being retried for."""
    if row.state is State.FAILED:
        code = public_code(row.error_code)
        # The engine's message for an internal code is for operators, not for users.
        own = row.error_message if row.error_code == code and row.error_message else None
        return code, own or message(code, final=True)
    failure = failure_before(row)
    if failure is None:
        return None, ""
    code = public_code(failure.get("code"))
    return code, message(code, final=False)


def _next_attempt(row: JobRow, now: datetime) -> dict[str, Any]:
    """Return when a failed job is due, and the time until then, since the reader's clock may be wrong."""
    if row.state is not State.QUEUED or row.run_at <= now:
        return {"retry_after": None, "retry_in_ms": None}
    wait = (row.run_at - now).total_seconds()
    return {"retry_after": _moment(row.run_at), "retry_in_ms": round(wait * 1000)}


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")

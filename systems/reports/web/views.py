"""The JSON form of a report. Its status is queued, processing, succeeded, failed or cancelled."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import JobRow, State
from systems.common.rows import failure_before
from systems.reports.codes import Code, message, public_code

STATUS = {
    State.QUEUED: "queued",
    State.PROCESSING: "processing",
    State.COMPLETE: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
}


def show(row: JobRow) -> dict[str, Any]:
    """Return a report as JSON values.

    `step` is the step of the chain that runs now. `error_code` is set only when the report has failed. `message` describes the last failure, if any, at any
    time.
    """
    payload = row.payload if isinstance(row.payload, dict) else {}
    schema = payload.get("schema")
    code, line = _last_failure(row)
    failed = row.state is State.FAILED
    is_waiting = row.state is State.QUEUED and row.attempt > 0
    return {
        "id": row.id,
        "source": payload.get("source", ""),
        "schema": schema if isinstance(schema, str) else "(given)",
        "status": STATUS[row.state],
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "created_at": _moment(row.created_at),
        "started_at": _moment(row.started_at),
        "finished_at": _moment(row.finished_at),
        "next_run_at": _moment(row.run_at) if is_waiting else None,
        "error_code": code.value if failed and code else None,
        "message": line,
        "step": (row.progress or {}).get("message") if row.state is State.PROCESSING else None,
        "is_retryable": row.is_retryable,
        "report": f"/reports/{row.id}/report" if row.state is State.COMPLETE and not row.expired_at else None,
    }


def _last_failure(row: JobRow) -> tuple[Code | None, str]:
    if row.state is State.FAILED:
        code = public_code(row.error_code)
        return code, message(code, final=True)
    failure = failure_before(row)
    if failure is None:
        return None, ""
    code = public_code(failure.get("code"))
    return code, message(code, final=False)


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat().replace("+00:00", "Z")

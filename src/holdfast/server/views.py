"""Rows as callers see them: plain dictionaries in the form of `holdfast.server.models`."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

from holdfast.jobs.job import Attempt, DeadLetter, DeadLetterGroup, Event, JobRow, LateResult
from holdfast.jobs.lanes import Held
from holdfast.redaction import redact_text, redacted
from holdfast.server.access import Caller

_MILLISECOND = timedelta(milliseconds=1)
_JOB = tuple(field.name for field in fields(JobRow) if field.name not in ("payload", "result"))


def job_view(row: JobRow, *, with_result: bool = False, with_args: bool = False) -> dict[str, Any]:
    shown = {name: getattr(row, name) for name in _JOB}
    shown["failed_at"], shown["is_retryable"] = row.failed_at, row.is_retryable
    shown["result"] = row.result if with_result else None
    if row.error_message is not None:
        shown["error_message"] = redact_text(row.error_message)
    if row.last_failure is not None:
        shown["last_failure"] = redacted(None, row.last_failure)
    if with_args:
        shown["args"] = redacted(None, row.payload)
    return shown


def event_view(event: Event) -> dict[str, Any]:
    return {
        "id": str(event.id),
        "at": event.at,
        "kind": event.kind,
        "job_id": event.job_id,
        "epoch": event.epoch,
        "attempt": event.attempt,
        "meta": redacted(None, event.meta),
    }


def attempt_view(attempt: Attempt, caller: Caller) -> dict[str, Any]:
    """Return an attempt. Technical details are hidden from owners, because they reveal machines and the services of others."""
    failure, spent = attempt.failure, attempt.duration
    return {
        "epoch": attempt.epoch,
        "generation": attempt.generation,
        "attempt": attempt.attempt,
        "worker": attempt.worker,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "duration_ms": None if spent is None else spent / _MILLISECOND,
        "outcome": attempt.outcome,
        "error_code": failure and failure.code,
        "error_message": failure and redact_text(failure.message),
        "error_detail": failure and _detail(failure.detail, caller),
        "fingerprint": failure and failure.fingerprint,
        "gateway_status": failure and failure.gateway_status,
        "cost": attempt.cost,
        "traceback": None if caller.is_owner else traceback_of(attempt),
        "logs": [] if caller.is_owner else [redact_text(line) for line in attempt.logs],
    }


def traceback_of(attempt: Attempt) -> str | None:
    """Return the traceback of its failure, or None. It was stored without secrets and ends with the detail."""
    failure = attempt.failure
    if failure is None or failure.traceback is None:
        return None
    return failure.traceback.with_message(redact_text(failure.detail))


def _detail(text: str, caller: Caller) -> str | None:
    return None if caller.is_owner else redact_text(text)


def late_result_view(late: LateResult) -> dict[str, Any]:
    return {
        "epoch": late.epoch,
        "at": late.at,
        "reason": late.reason,
        "outcome": late.outcome,
        "result": late.result,
        "is_late": True,
    }


def dead_letter_view(
    letter: DeadLetter, caller: Caller, *, with_args: bool = False, traceback: str | None = None
) -> dict[str, Any]:
    shown = {field.name: getattr(letter, field.name) for field in fields(letter) if field.name != "payload"}
    shown["traceback"] = None if caller.is_owner else traceback
    shown["message"], shown["detail"] = redact_text(letter.message), _detail(letter.detail, caller)
    return shown | ({"args": redacted(None, letter.payload)} if with_args else {})


def group_view(group: DeadLetterGroup) -> dict[str, Any]:
    return {field.name: getattr(group, field.name) for field in fields(group)} | {
        "message": redact_text(group.message)
    }


def held_view(held: Held | None) -> dict[str, Any] | None:
    if held is None:
        return None
    return {
        "kind": held.scope.kind,
        "name": held.scope.name,
        "cause": held.cause,
        "until": held.until,
        "reason": held.reason,
        "by": held.by,
        "at": held.at,
    }

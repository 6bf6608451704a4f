"""Check one callback's signature, form and submission, then let the engine decide its effect (G6).

The engine compares the deadline in the same statement that completes the job. A result exactly at the
deadline is in time, and a later one is late, whether the sweep or the callback comes first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from holdfast import UnknownJob, UsageError
from holdfast.celery import SIGNATURE, BadSignature, verify
from holdfast.external import Done, Failed, ReportStatus, Requeue
from systems.grading.messages import LARGEST_MESSAGE, Callback, parse_request_id
from systems.grading.tasks import Grading


class Refused(Exception):
    """The callback is invalid and changes nothing. The message says why.

    *name* is one of a few kinds. The submission gets one event of each kind, however many such callbacks
    come.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


async def apply(
    grading: Grading, *, content_type: str, headers: Mapping[str, Any], message_id: str | None, body: bytes
) -> ReportStatus:
    """Apply a callback and return the engine's reply.

    Raises:
        Refused: The callback is invalid.
        StoreError: The store does not answer; try again.
    """
    try:
        callback = read(grading, content_type=content_type, headers=headers, message_id=message_id, body=body)
    except Refused as refused:
        await _record_refusal(grading, message_id, refused.name, str(refused))
        raise
    submission_id, generation = parse_request_id(callback.request_id)
    app, worker = grading.app, callback.worker
    try:
        if callback.status == "processing":
            report = await app.external.begin(submission_id, generation=generation, worker=worker)
        else:
            report = await app.external.end(
                submission_id, _outcome(callback), generation=generation, worker=worker
            )
    except UnknownJob:
        raise Refused("unknown", "its submission does not exist") from None
    except UsageError:
        raise Refused("unknown", "its job is not a submission") from None
    if report.answer is ReportStatus.REPEATED and callback.status in ("completed", "failed"):
        reason = f"the end of request {callback.request_id} came again"
        await _record_refusal(grading, message_id, f"again {generation}", reason)
    return report.answer


async def _record_refusal(grading: Grading, message_id: str | None, name: str, reason: str) -> None:
    """Record a refusal as an event of the submission that the message id names, if it exists."""
    with contextlib.suppress(ValueError, UnknownJob, UsageError):
        submission_id, _ = parse_request_id(message_id or "")
        await grading.app.external.refuse(submission_id, name, reason=reason, by="callback")


def _outcome(callback: Callback) -> Done | Failed | Requeue:
    error = callback.error
    if error is None:
        return Done(msgspec.to_builtins(callback.result))
    if callback.status == "failed":
        return Failed(error.code, error.message)
    # A request that the breaker held back was not attempted.
    return Requeue(
        timedelta(milliseconds=error.retry_in_ms or 0), error.code, retry=error.code != "CIRCUIT_OPEN"
    )


def read(
    grading: Grading, *, content_type: str, headers: Mapping[str, Any], message_id: str | None, body: bytes
) -> Callback:
    """Verify and decode a callback. Raise `Refused` if it is invalid."""
    if len(body) > LARGEST_MESSAGE:
        raise Refused("too large", f"it has {len(body):,} bytes; at most {LARGEST_MESSAGE:,} are allowed")
    if content_type != "application/json":
        raise Refused(
            "content type", f"its content type is {content_type[:60]!r}; only application/json is accepted"
        )
    try:
        verify(grading.settings.callback_secrets, headers, message_id, body)
    except BadSignature as error:
        raise Refused("forged" if headers.get(SIGNATURE) else "unsigned", str(error)) from None
    try:
        callback = msgspec.json.decode(body, type=Callback)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refused("unreadable", f"it is not a callback: {error}"[:500]) from None
    if callback.request_id != message_id:
        raise Refused("another id", "its message id is not that of its request")
    return callback

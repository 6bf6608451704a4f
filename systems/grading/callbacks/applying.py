"""Judges one callback: is it signed, is it whole, whom is it about; then the engine decides what it changes (G6).

The engine compares the deadline in the very statement that would complete the job: at the deadline is in time, after it is late,
whichever of the sweep and the callback comes first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from holdfast import Done, Failed, ReportStatus, Requeue, UnknownJob, UsageError
from holdfast.celery import SIGNATURE, BadSignature, verify
from systems.grading.messages import LARGEST_MESSAGE, Callback, split
from systems.grading.tasks import Grading


class Refused(Exception):
    """This callback changes nothing, now or ever; the words say why. Its *name* is one of a few: the submission it is about has
    one event of each, however many such callbacks somebody sends."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


async def apply(
    grading: Grading, *, content_type: str, headers: Mapping[str, Any], message_id: str | None, body: bytes
) -> ReportStatus:
    """What became of it. `Refused` for what is no callback of ours; a `StoreError` may be tried again."""
    try:
        callback = read(grading, content_type=content_type, headers=headers, message_id=message_id, body=body)
    except Refused as refused:
        await _put_on_record(grading, message_id, refused.name, str(refused))
        raise
    submission_id, generation = split(callback.request_id)
    app, worker = grading.app, callback.worker
    try:
        if callback.status == "processing":
            report = await app.begin(submission_id, generation=generation, worker=worker)
        else:
            report = await app.end(submission_id, _outcome(callback), generation=generation, worker=worker)
    except UnknownJob:
        raise Refused("unknown", "it is about a submission that is not known") from None
    except UsageError:
        raise Refused("unknown", "it is about something that is no submission") from None
    if report.answer is ReportStatus.REPEATED and callback.status in ("completed", "failed"):
        reason = f"the end of request {callback.request_id} came again"
        await _put_on_record(grading, message_id, f"again {generation}", reason)
    return report.answer


async def _put_on_record(grading: Grading, message_id: str | None, name: str, reason: str) -> None:
    """An event of the submission that the message claims to be about, if there is one: nothing else is known of it."""
    with contextlib.suppress(ValueError, UnknownJob, UsageError):
        submission_id, _ = split(message_id or "")
        await grading.app.refuse(submission_id, name, reason=reason, by="callback")


def _outcome(callback: Callback) -> Done | Failed | Requeue:
    error = callback.error
    if error is None:
        return Done(msgspec.to_builtins(callback.result))
    if callback.status == "failed":
        return Failed(error.code, error.message)
    # What the breaker holds back was not tried.
    return Requeue(
        timedelta(milliseconds=error.retry_in_ms or 0), error.code, retry=error.code != "CIRCUIT_OPEN"
    )


def read(
    grading: Grading, *, content_type: str, headers: Mapping[str, Any], message_id: str | None, body: bytes
) -> Callback:
    if len(body) > LARGEST_MESSAGE:
        raise Refused("too large", f"it has {len(body):,} bytes; {LARGEST_MESSAGE:,} are allowed")
    if content_type != "application/json":
        raise Refused(
            "content type", f"its content type is {content_type[:60]!r}; only application/json is read"
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

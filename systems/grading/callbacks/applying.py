"""Judges one callback: is it signed, is it whole, whom is it about; then the engine decides what it changes (G6).

The engine compares the deadline in the very statement that would complete the job: at the deadline is in time, after it is late,
whichever of the sweep and the callback comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from holdfast import Done, Failed, PutBack, Reply, UnknownJob, UsageError
from holdfast.celery import BadSignature, verify
from systems.grading.messages import LARGEST_MESSAGE, Callback, split
from systems.grading.tasks import Grading


class Refused(Exception):
    """This callback changes nothing, now or ever; the words say why."""


async def apply(
    grading: Grading, *, content_type: str, headers: Mapping[str, Any], message_id: str | None, body: bytes
) -> Reply:
    """What became of it. `Refused` for what is no callback of ours; a `StoreError` may be tried again."""
    callback = read(grading, content_type=content_type, headers=headers, message_id=message_id, body=body)
    submission_id, generation = split(callback.request_id)
    app, worker = grading.app, callback.worker
    try:
        if callback.status == "processing":
            report = await app.begin(submission_id, generation=generation, worker=worker)
        else:
            report = await app.end(submission_id, _outcome(callback), generation=generation, worker=worker)
    except UnknownJob:
        raise Refused("it is about a submission that is not known") from None
    except UsageError:
        raise Refused("it is about something that is no submission") from None
    return report.answer


def _outcome(callback: Callback) -> Done | Failed | PutBack:
    error = callback.error
    if error is None:
        return Done(msgspec.to_builtins(callback.result))
    if callback.status == "failed":
        return Failed(error.code, error.message)
    return PutBack(timedelta(milliseconds=error.retry_in_ms or 0), error.code)


def read(
    grading: Grading, *, content_type: str, headers: Mapping[str, Any], message_id: str | None, body: bytes
) -> Callback:
    if len(body) > LARGEST_MESSAGE:
        raise Refused(f"it has {len(body):,} bytes; {LARGEST_MESSAGE:,} are allowed")
    if content_type != "application/json":
        raise Refused(f"its content type is {content_type[:60]!r}; only application/json is read")
    try:
        verify(grading.settings.callback_secrets, headers, message_id, body)
    except BadSignature as error:
        raise Refused(str(error)) from None
    try:
        callback = msgspec.json.decode(body, type=Callback)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refused(f"it is not a callback: {error}"[:500]) from None
    if callback.request_id != message_id:
        raise Refused("its message id is not that of its request")
    return callback

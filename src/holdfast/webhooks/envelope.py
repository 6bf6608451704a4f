"""The JSON body of a webhook message: a CloudEvent with its secrets redacted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from holdfast.engine.cloudevent import Subject, of_event
from holdfast.jobs.job import Event
from holdfast.redaction import redacted


def event_body(event: Event, subject: Subject) -> bytes:
    """Return the body of the message about *event*, redacted."""
    return encode_envelope(of_event(replace(event, meta=redacted(None, event.meta)), subject))


def encode_envelope(envelope: dict[str, Any]) -> bytes:
    """Return an envelope as JSON."""
    return msgspec.json.encode(envelope, enc_hook=str)

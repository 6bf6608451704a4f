"""What others are told of an event: its envelope as JSON, with what may not be read hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from holdfast.domain.cloudevent import Subject, of_event
from holdfast.domain.job import Event
from holdfast.redaction import redacted


def enveloped(event: Event, subject: Subject) -> bytes:
    return written(of_event(replace(event, meta=redacted(None, event.meta)), subject))


def written(envelope: dict[str, Any]) -> bytes:
    return msgspec.json.encode(envelope, enc_hook=str)

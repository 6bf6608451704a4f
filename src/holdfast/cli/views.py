"""Values as programs see them: plain dictionaries, and JSON on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.domain.job import (
        Artifact,
        Attempt,
        DeadLetter,
        DeadLetterGroup,
        Event,
        JobRow,
        LateResult,
        WorkerRow,
    )
    from holdfast.domain.operation import Operation
    from holdfast.engine.explanations import LaneRow, QueueRow

    Row = (
        JobRow
        | Event
        | DeadLetter
        | DeadLetterGroup
        | LateResult
        | WorkerRow
        | Artifact
        | LaneRow
        | QueueRow
        | Operation
    )


def view(value: Row) -> dict[str, Any]:
    """Every field by its name; a job also says what can be derived from its row (E3a)."""
    from holdfast.domain.job import JobRow

    shown = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, JobRow):
        shown |= {"failed_at": value.failed_at, "is_retryable": value.is_retryable}
    return shown


def attempt_view(attempt: Attempt) -> dict[str, Any]:
    shown = {field.name: getattr(attempt, field.name) for field in fields(attempt)}
    spent, failure = attempt.duration, attempt.failure
    if failure is not None:
        kept = [field.name for field in fields(failure) if field.name != "traceback"]
        shown["failure"] = {name: getattr(failure, name) for name in kept}
    shown["traceback"] = attempt.traceback
    return shown | {"duration_ms": None if spent is None else spent / timedelta(milliseconds=1)}


def job_view(row: JobRow, events: Sequence[Event] | None = None) -> dict[str, Any]:
    shown = view(row)
    return shown if events is None else shown | {"events": [view(event) for event in events]}


def encode(value: Any) -> bytes:
    """JSON in one line; moments as ISO 8601 in UTC."""
    import msgspec

    return msgspec.json.encode(value, enc_hook=str)


def say(line: str) -> None:
    """Print *line*, which may hold names and words of others: one line, and nothing that a terminal would obey."""
    from holdfast.printable import printable

    print(printable(line))


def print_json(value: Any) -> None:
    text = encode(value)
    if sys.stdout.isatty():
        import msgspec

        text = msgspec.json.format(text, indent=2)
    sys.stdout.write(text.decode() + "\n")
    sys.stdout.flush()

"""Print values for programs: plain dictionaries, as JSON."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from holdfast.jobs.job import Attempt, Event, JobRow


def view(value: DataclassInstance, *, without: Collection[str] = ()) -> dict[str, Any]:
    """Return every field by its name except those in *without*, of a job also what can be derived from its row."""
    from holdfast.jobs.job import JobRow

    shown = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in without}
    if isinstance(value, JobRow):
        shown |= {"failed_at": value.failed_at, "is_retryable": value.is_retryable}
    return shown


def attempt_view(attempt: Attempt) -> dict[str, Any]:
    shown, spent, failure = view(attempt), attempt.duration, attempt.failure
    if failure is not None:
        shown["failure"] = view(failure, without=("traceback",))
    shown["traceback"] = attempt.traceback
    return shown | {"duration_ms": None if spent is None else spent / timedelta(milliseconds=1)}


def job_view(row: JobRow, events: Sequence[Event] | None = None) -> dict[str, Any]:
    shown = view(row)
    return shown if events is None else shown | {"events": [view(event) for event in events]}


def encode(value: Any) -> bytes:
    """Return *value* as one line of JSON, with times as ISO 8601 in UTC."""
    import msgspec

    return msgspec.json.encode(value, enc_hook=str)


def say(line: str) -> None:
    """Print one line. Control characters in it are escaped, because it may hold text of others."""
    from holdfast.printable import printable

    print(printable(line))


def print_line(value: Any) -> None:
    """Print one value as one line of JSON, also at a terminal."""
    sys.stdout.write(encode(value).decode() + "\n")


def print_json(value: Any) -> None:
    text = encode(value)
    if sys.stdout.isatty():
        import msgspec

        text = msgspec.json.format(text, indent=2)
    sys.stdout.write(text.decode() + "\n")
    sys.stdout.flush()

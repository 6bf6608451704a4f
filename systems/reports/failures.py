"""Failures of an attempt: the code of each, whether it is retried (P3, P4), and the message."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast import Fatal, Retryable, StoreUnavailable
from systems.reports.codes import CODES, Code, message


@dataclass(frozen=True, slots=True)
class Answered:
    """The status and headers of a service's response, in the shape in which the engine reads them."""

    status_code: int
    headers: Mapping[str, str] = field(default_factory=dict)


class Trouble(Exception):
    """A failure with a public code.

    *reason* is for operators, and holds no third-party text and no secret.
    """

    def __init__(self, code: Code, reason: str = "", response: Answered | None = None) -> None:
        super().__init__(reason or code.value)
        self.code, self.response = code, response


class DocumentsUnavailable(Trouble):
    """A document store failed temporarily."""

    def __init__(self, reason: str) -> None:
        super().__init__(Code.IO_ERROR, reason)


class ReportFailed(Exception):
    """An attempt failed.

    *outcome* says whether the job is retried; *response* is the model's response, if any.
    """

    def __init__(self, reason: str, outcome: Retryable | Fatal, response: Any = None) -> None:
        super().__init__(reason)
        self.outcome, self.response = outcome, response


def failed(error: Exception, *, attempt: int, max_attempts: int) -> Exception:
    """Return *error* as a `ReportFailed` whose message says whether another attempt follows.

    An unknown error is returned as it is: the engine retries it, and does not count a bug of ours against the
    model.
    """
    code = code_of(error)
    if code is Code.UNKNOWN:
        return error
    retryable = CODES[code].again
    line = message(code, final=not retryable or attempt >= max_attempts)
    outcome = Retryable(line, code=code.value) if retryable else Fatal(line, code=code.value)
    reason = f"{type(error).__name__}: {error}" if isinstance(error, Trouble) else type(error).__name__
    return ReportFailed(reason, outcome, error.response if isinstance(error, Trouble) else None)


def code_of(error: BaseException) -> Code:
    """Return the public code of any exception; UNKNOWN when there is none."""
    match error:
        case Trouble():
            return error.code
        case StoreUnavailable() | sqlite3.OperationalError():
            return Code.IO_ERROR
        case TimeoutError():
            return Code.MODEL_TIMEOUT
        case OSError():
            return Code.IO_ERROR
    # By name, because asyncpg is an optional dependency.
    return Code.IO_ERROR if type(error).__module__.startswith("asyncpg") else Code.UNKNOWN


def rule(error: BaseException) -> Retryable | Fatal | None:
    """Classify *error* for the task's `rules`; None leaves it to the engine.

    `DocumentsUnavailable` gets here only through the breaker of the documents; the task turns it into
    `ReportFailed`.
    """
    if isinstance(error, ReportFailed):
        return error.outcome
    if isinstance(error, DocumentsUnavailable):
        return Retryable(message(error.code, final=False), code="STORAGE")
    return None

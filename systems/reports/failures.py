"""What a failed attempt is: which code, whether it is tried again (P3, P4), and in which words."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast import Fatal, Retryable, StoreUnavailable
from systems.reports.codes import CODES, Code, message


@dataclass(frozen=True, slots=True)
class Answered:
    """What a service answered, in the shape in which the engine reads a status and a Retry-After."""

    status_code: int
    headers: Mapping[str, str] = field(default_factory=dict)


class Trouble(Exception):
    """Something went wrong that has a code. *reason* is for operators: no text of others, no secret."""

    def __init__(self, code: Code, reason: str = "", response: Answered | None = None) -> None:
        super().__init__(reason or code.value)
        self.code, self.response = code, response


class DocumentsAway(Trouble):
    """A store of documents did not do what it was asked to, and may later."""

    def __init__(self, reason: str) -> None:
        super().__init__(Code.IO_ERROR, reason)


class ReportFailed(Exception):
    """An attempt failed. *word* is what becomes of the job; *response* is the model's answer, if it gave one."""

    def __init__(self, reason: str, word: Retryable | Fatal, response: Any = None) -> None:
        super().__init__(reason)
        self.word, self.response = word, response


def failed(error: Exception, *, attempt: int, max_attempts: int) -> Exception:
    """Say what *error* is, in the tense of an attempt that is the last or not.

    What nobody knows stays as it is: the engine tries it again, and does not blame the model for a bug of ours.
    """
    code = code_of(error)
    if code is Code.UNKNOWN:
        return error
    again = CODES[code].again
    line = message(code, final=not again or attempt >= max_attempts)
    word = Retryable(line, code=code.value) if again else Fatal(line, code=code.value)
    reason = f"{type(error).__name__}: {error}" if isinstance(error, Trouble) else type(error).__name__
    return ReportFailed(reason, word, error.response if isinstance(error, Trouble) else None)


def code_of(error: BaseException) -> Code:
    match error:
        case Trouble():
            return error.code
        case StoreUnavailable() | sqlite3.OperationalError():
            return Code.IO_ERROR
        case TimeoutError():
            return Code.MODEL_TIMEOUT
        case OSError():
            return Code.IO_ERROR
    # asyncpg is there only where it is used
    return Code.IO_ERROR if type(error).__module__.startswith("asyncpg") else Code.UNKNOWN


def rule(error: BaseException) -> Retryable | Fatal | None:
    """For the task's `rules`. `DocumentsAway` is seen here only by the breaker of the documents, on its way out."""
    if isinstance(error, ReportFailed):
        return error.word
    if isinstance(error, DocumentsAway):
        return Retryable(message(error.code, final=False), code="STORAGE")
    return None

"""The registry of error codes: each has a class, an HTTP status and a message for people.

The message never contains a stack trace, a path or a secret: technical detail goes to the log and the
attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from holdfast.errors import UsageError


class ErrorClass(StrEnum):
    """What a failure says about trying again."""

    TRANSIENT = "transient"  # the same call may succeed later
    THROTTLED = "throttled"  # the same call may succeed at a lower rate
    PERMANENT = "permanent"  # the same call will fail again
    UNKNOWN = "unknown"  # not classified; retried


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code with its meaning; *status* is the HTTP status, *message* one line for people."""

    name: str
    error_class: ErrorClass
    status: int
    message: str


T, H, P, U = ErrorClass

_CODES: dict[str, ErrorCode] = {}


def register(name: str, error_class: ErrorClass, status: int, message: str) -> ErrorCode:
    """Add a code of the engine. Raises `UsageError` if *name* is registered with another meaning."""
    code = ErrorCode(name, error_class, status, message)
    if _CODES.setdefault(name, code) != code:
        raise UsageError(f"the code {name} is registered already with another meaning: {_CODES[name]}")
    return code


#: The codes of an app that declares none.
NONE_DECLARED: Mapping[str, ErrorCode] = MappingProxyType({})


def declare(declared: dict[str, ErrorCode], name: str, message: str, error_class: str) -> None:
    """Add a code of an app to those it has *declared*.

    Raises `UsageError` if the class is unknown, the engine has this code, or it is declared with another
    meaning.
    """
    try:
        kind = ErrorClass(error_class)
    except ValueError:
        known = ", ".join(one.value for one in ErrorClass)
        raise UsageError(f"error_class is {error_class!r:.60}; it is one of {known}") from None
    if name in _CODES:
        raise UsageError(f"{name} is a code of the engine and keeps its message; choose another name")
    code = ErrorCode(name, kind, 500, message)
    if declared.setdefault(name, code) != code:
        raise UsageError(f"the code {name} is declared already with another meaning: {declared[name]}")


def lookup(name: str, declared: Mapping[str, ErrorCode] = NONE_DECLARED) -> ErrorCode:
    """Return the code of this *name*, or a code of class "unknown" with that name if there is none."""
    return declared.get(name) or _CODES.get(name) or ErrorCode(name, U, 500, _CODES["UNKNOWN"].message)


def is_known(name: str, declared: Mapping[str, ErrorCode] = NONE_DECLARED) -> bool:
    """Return whether the code is one that the app has *declared* or one of the engine's."""
    return name in declared or name in _CODES


def all_codes() -> list[ErrorCode]:
    return sorted(_CODES.values(), key=lambda code: code.name)


for _row in (
    ("UNKNOWN", U, 500, "Something unexpected went wrong."),
    ("RETRYABLE", T, 503, "The task asked to be tried again."),
    ("FATAL", P, 422, "The task cannot succeed with this input."),
    ("NETWORK", T, 502, "A service could not be reached."),
    ("CALL_TIMEOUT", T, 504, "A service did not answer in time."),
    ("HTTP_5XX", T, 502, "A service answered with an error of its own."),
    ("HTTP_4XX", P, 422, "A service refused the request."),
    ("THROTTLED", H, 429, "A service asked to be called less often."),
    ("DATABASE", T, 503, "A database could not do the work at the moment."),
    ("IO_ERROR", T, 500, "Reading or writing a file failed."),
    ("DISK_FULL", P, 507, "There is no space left to write to."),
    ("PERMISSION", P, 403, "Access was refused."),
    ("NOT_FOUND", P, 404, "A file or object that is needed does not exist."),
    ("CERTIFICATE", P, 502, "A service's certificate cannot be trusted."),
    ("MEMORY", T, 503, "There was not enough memory."),
    ("BAD_CALL", P, 500, "The task was called in a way it does not allow."),
    ("TIMEOUT", P, 504, "The job was not finished before its deadline."),
    ("EXECUTION_TIMEOUT", T, 504, "The attempt ran longer than its timeout and was stopped."),
    ("WORKER_LOST", P, 500, "The worker was lost while the job ran."),
    ("STUCK", T, 500, "The attempt ran for too long and was reclaimed."),
    ("EXITED", U, 500, "The task tried to end its worker."),
    ("PAYLOAD_INVALID", P, 422, "The stored arguments cannot be read by this version of the task."),
    ("RESULT_INVALID", P, 500, "The task returned something that cannot be stored."),
    ("RESULT_TOO_LARGE", P, 413, "The result is too large to be stored."),
    ("EXPIRED", P, 404, "The result was kept for its time and then removed."),
    ("END_REFUSED", T, 500, "The end of the attempt could not be recorded."),
    ("CIRCUIT_OPEN", T, 503, "A service that the job needs is down; calls to it are stopped for now."),
    ("NOT_ADMITTED", P, 403, "The job was not admitted."),
    ("STARTED_TOO_LATE", P, 504, "The job could not be started in time."),
    ("INSUFFICIENT_CREDITS", P, 402, "There are not enough credits for this."),
    ("QUOTA_EXCEEDED", P, 429, "The quota of this day or month is used up."),
):
    register(*_row)

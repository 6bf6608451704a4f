"""The verdict on one attempt, as a value: workers make verdicts, stores record them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.jobs.codes import NONE_DECLARED, ErrorClass, ErrorCode, is_known, lookup
from holdfast.jobs.tracebacks import Traceback


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed: *message* is for people, *detail* for engineers."""

    code: str
    message: str
    error_class: ErrorClass = ErrorClass.UNKNOWN
    detail: str = ""
    fingerprint: str = ""
    gateway_status: int | None = None
    retry_after: timedelta | None = None
    forget: tuple[str, ...] = ()
    traceback: Traceback | None = None

    @classmethod
    def of(cls, code: str, detail: str = "", codes: Mapping[str, ErrorCode] = NONE_DECLARED) -> Failure:
        """Return a failure that the engine itself detected; its message comes from *codes* or the engine."""
        known = lookup(code, codes)
        return cls(code, known.message, known.error_class, detail)

    @classmethod
    def held(cls, code: str, detail: str, codes: Mapping[str, ErrorCode]) -> Failure:
        """Return the failure of a job that was not called, because a breaker is open; *code* names it.

        A code that is not declared means what `CIRCUIT_OPEN` means.
        """
        words = code if is_known(code, codes) else "CIRCUIT_OPEN"
        return replace(cls.of(words, detail, codes), code=code)

    def with_code(self, code: str) -> Failure:
        """Return this failure with another code; the detail keeps the first code and message."""
        known = lookup(code)
        detail = f"{self.code}: {self.detail or self.message}"
        return replace(self, code=code, message=known.message, error_class=known.error_class, detail=detail)


@dataclass(frozen=True, slots=True)
class Complete:
    """The attempt succeeded."""

    result: str | None  #: JSON text; None when the task keeps no result
    gateway_status: int | None = None  #: the HTTP status of the service behind it, if the handler reports it


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The attempt failed; try again after *delay*."""

    delay: timedelta
    failure: Failure


@dataclass(frozen=True, slots=True)
class Bury:
    """The job failed finally and becomes a dead letter."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Release:
    """The attempt is given back and does not count. The event stores *reason* and *wait_reason*.

    *reason* is one line for people. *wait_reason* is the same for programs, if
    `holdfast.diagnosis.wait_reasons.WaitReason` has a name for it.
    """

    delay: timedelta = timedelta()
    reason: str = "shutdown"
    snoozed: bool = False
    wait_reason: str | None = None


Verdict = Complete | RetryAfter | Bury | Release

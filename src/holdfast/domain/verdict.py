"""What one attempt came to, as values: the worker makes them, the stores write them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.domain.codes import NONE_DECLARED, ErrorClass, ErrorCode, is_known, lookup
from holdfast.domain.tracebacks import Traceback


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
    traceback: Traceback | None = None  #: where it was raised

    @classmethod
    def of(cls, code: str, detail: str = "", codes: Mapping[str, ErrorCode] = NONE_DECLARED) -> Failure:
        """Return a failure that the engine itself found, in the words of the app's *codes* or the engine's."""
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
        """The same failure, ended for another reason; the first reason stays readable in the detail."""
        known = lookup(code)
        told = f"{self.code}: {self.detail or self.message}"
        return replace(self, code=code, message=known.message, error_class=known.error_class, detail=told)


@dataclass(frozen=True, slots=True)
class Complete:
    result: str | None  #: JSON text; None when the task keeps no result
    gateway_status: int | None = None  #: what the service behind it answered, where the handler says so


@dataclass(frozen=True, slots=True)
class RetryAfter:
    delay: timedelta
    failure: Failure


@dataclass(frozen=True, slots=True)
class Bury:
    failure: Failure


@dataclass(frozen=True, slots=True)
class Release:
    """Give the attempt back: it does not count. *reason* is one line for people, *wait_reason* the same for programs, if it has a
    name there (`holdfast.domain.wait_reasons.WaitReason`). The event keeps both."""

    delay: timedelta = timedelta()
    reason: str = "shutdown"
    snoozed: bool = False
    wait_reason: str | None = None


Verdict = Complete | RetryAfter | Bury | Release

"""The two messages of an error code: one while the job will be retried, one once it has failed."""

from __future__ import annotations

from typing import NamedTuple

_LATER = "Trying again did not help; use Retry later."


class CodeInfo(NamedTuple):
    """An error code's HTTP status, whether it is retried, and its two messages."""

    status: int  #: of the response that reports it
    again: bool  #: whether the job is retried
    trying: str  #: shown while the job will be retried; the same as *final* if it never is
    final: str  #: shown once the job has failed


def fatal(status: int, text: str) -> CodeInfo:
    """Return a code that is never retried."""
    return CodeInfo(status, False, text, text)


def passing(status: int, text: str, final: str = _LATER) -> CodeInfo:
    """Return a code that is retried. *final* replaces the promise of a retry once the job has failed."""
    return CodeInfo(status, True, f"{text} It will be tried again.", f"{text} {final}")

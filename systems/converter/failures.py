"""Classify a failed conversion (C4): its code, whether it is retried, and its message."""

from __future__ import annotations

import errno
from typing import Any

import httpx2

from holdfast import Fatal, Retryable
from systems.converter.codes import Code, message
from systems.converter.gateway_client import BrokenAnswer, detail_of

#: A failed write is retried once only, whatever the number of attempts.
IO_ATTEMPTS = 2

_FULL = (errno.ENOSPC, errno.EDQUOT)


class SourceGone(Exception):
    """The PDF of the job no longer exists."""


class ConversionFailed(Exception):
    """An attempt failed.

    *verdict* says whether the job is retried; *response* is the gateway's, if there is one.
    """

    def __init__(self, reason: str, verdict: Retryable | Fatal, response: Any = None) -> None:
        super().__init__(reason)
        self.verdict, self.response = verdict, response


def failed(error: Exception, *, attempt: int, max_attempts: int) -> ConversionFailed:
    """Return the failure to raise for *error*.

    Its message promises a retry unless this attempt is the last.
    """
    response = error.response if isinstance(error, httpx2.HTTPStatusError) else None
    code, retried = _classify(error, response)
    attempts = min(IO_ATTEMPTS, max_attempts) if code is Code.IO_ERROR else max_attempts
    final = not retried or attempt >= attempts
    line = message(code, final=final, words=detail_of(response) if code is Code.GW_4XX else "")
    verdict = Retryable(line, code=code.value) if retried else Fatal(line, code=code.value)
    return ConversionFailed(f"{type(error).__name__}: {error}", verdict, response)


def _classify(error: Exception, response: Any) -> tuple[Code, bool]:
    if response is not None:
        status = response.status_code
        if status == 408:
            return Code.GW_TIMEOUT, True
        if 400 <= status < 500 and status != 429:
            return Code.GW_4XX, False
        return Code.GW_5XX, True
    match error:
        case SourceGone():
            return Code.EXPIRED, False
        case httpx2.TimeoutException() | TimeoutError():
            return Code.GW_TIMEOUT, True
        case httpx2.TransportError() | BrokenAnswer():
            return Code.GW_5XX, True
        case MemoryError():
            return Code.IO_ERROR, True
        case OSError():
            return Code.IO_ERROR, error.errno not in _FULL
    return Code.UNKNOWN, True


def rule(error: BaseException) -> Retryable | Fatal | None:
    """Return the verdict of a `ConversionFailed`, for the task's `rules`.

    The engine reads the status and the Retry-After from the error's response.
    """
    return error.verdict if isinstance(error, ConversionFailed) else None

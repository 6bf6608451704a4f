"""What a failed conversion is (C4): which code, whether it is tried again, and in which words."""

from __future__ import annotations

import errno
from typing import Any

import httpx2

from holdfast import Fatal, Retryable
from systems.converter.codes import Code, message
from systems.converter.gateway_client import BrokenAnswer, words_of

#: A write that failed is tried once more, not until the attempts are used up.
IO_ATTEMPTS = 2

_FULL = (errno.ENOSPC, errno.EDQUOT)


class SourceGone(Exception):
    """The PDF of the job is no longer there."""


class ConversionFailed(Exception):
    """An attempt failed. *word* is what becomes of the job; *response* is the gateway's answer, if it gave one."""

    def __init__(self, reason: str, word: Retryable | Fatal, response: Any = None) -> None:
        super().__init__(reason)
        self.word, self.response = word, response


def failed(error: Exception, *, attempt: int, max_attempts: int) -> ConversionFailed:
    """Say what *error* is, in the tense of an attempt that is the last or not."""
    response = error.response if isinstance(error, httpx2.HTTPStatusError) else None
    code, again = _judge(error, response)
    most = min(IO_ATTEMPTS, max_attempts) if code is Code.IO_ERROR else max_attempts
    final = not again or attempt >= most
    line = message(code, final=final, words=words_of(response) if code is Code.GW_4XX else "")
    word = Retryable(line, code=code.value) if again else Fatal(line, code=code.value)
    return ConversionFailed(f"{type(error).__name__}: {error}", word, response)


def _judge(error: Exception, response: Any) -> tuple[Code, bool]:
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
    """For the task's `rules`: the word of a failure that was judged here. Its response stays visible to the engine,
    which reads the status and the Retry-After from it."""
    return error.word if isinstance(error, ConversionFailed) else None

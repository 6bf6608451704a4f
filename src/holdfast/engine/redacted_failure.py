"""Remove secrets from failures before they are stored."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from holdfast.jobs.verdict import Failure
from holdfast.redaction import redact_text


@lru_cache(maxsize=1024)
def presentable(failure: Failure) -> Failure:
    """Return *failure* without the secrets that can be recognized in its texts.

    A failure is a value: when a thousand jobs fail for one cause, it is searched and stored once.
    """
    message, detail = redact_text(failure.message), redact_text(failure.detail)
    if (message, detail) == (failure.message, failure.detail):
        return failure
    return replace(failure, message=message, detail=detail)

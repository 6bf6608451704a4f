"""Failures as they may be written down."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from holdfast.domain.verdict import Failure
from holdfast.redaction import redact_text


@lru_cache(maxsize=1024)
def presentable(failure: Failure) -> Failure:
    """*failure* as it may be written down: what an exception said, without the secrets that can be told by their looks.

    A failure is a value: when a thousand jobs fail for one cause, it is searched once, and the stores are told it once.
    """
    message, detail = redact_text(failure.message), redact_text(failure.detail)
    if (message, detail) == (failure.message, failure.detail):
        return failure
    return replace(failure, message=message, detail=detail)

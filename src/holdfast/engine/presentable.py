"""Failures as they may be written down."""

from __future__ import annotations

from dataclasses import replace

from holdfast.domain.verdict import Failure
from holdfast.redaction import redact_text


def presentable(failure: Failure) -> Failure:
    """*failure* as it may be written down: what an exception said, without the secrets that can be told by their looks."""
    message, detail = redact_text(failure.message), redact_text(failure.detail)
    if (message, detail) == (failure.message, failure.detail):
        return failure
    return replace(failure, message=message, detail=detail)

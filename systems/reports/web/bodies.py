"""Requests as they come in: bounded, strict, and in one line when they are not what they should be."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Request

from systems.common.asking import UNREADABLE, body_of, why_unreadable
from systems.reports.codes import Code
from systems.reports.prompt import LONGEST_INSTRUCTIONS
from systems.reports.web.problems import Refused

MOST_BODY = 200_000
T = TypeVar("T")


class AskReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    schema: str | dict[str, Any]
    instructions: Annotated[str, msgspec.Meta(max_length=LONGEST_INSTRUCTIONS)] = ""


class AskRetry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keep_answer: bool = True  #: go on with the recorded answer of the model, or ask it again


class AskRevalidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str | dict[str, Any] | None = None  #: None: the one that the report's own name has now
    complete: bool = True  #: False only tells whether it would fit


async def read_body(request: Request, kind: type[T]) -> T:
    body = await body_of(request, MOST_BODY)
    if body is None:
        detail = f"The request is larger than {MOST_BODY:,} bytes."
        raise Refused(Code.TOO_LARGE, detail, headers={"connection": "close"})
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE as error:
        raise Refused(Code.INVALID_REQUEST, why_unreadable(error)) from None

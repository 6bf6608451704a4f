"""Requests as they come in: bounded, strict, and in one line when they are not what they should be."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Request

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
    taken = bytearray()
    async for piece in request.stream():
        taken += piece
        if len(taken) > MOST_BODY:
            raise Refused(
                Code.TOO_LARGE,
                f"The request is larger than {MOST_BODY:,} bytes.",
                headers={"connection": "close"},
            )
    try:
        return msgspec.json.decode(bytes(taken) or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        line = str(error).split("\n", 1)[0][:200]
        raise Refused(Code.INVALID_REQUEST, f"The body is not what is asked for here: {line}.") from None

"""Request bodies: bounded in size, strictly decoded, and refused with a one-line reason."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Request

from systems.common.requests import UNREADABLE, bounded_body, decode_error_text
from systems.reports.codes import Code
from systems.reports.prompt import LONGEST_INSTRUCTIONS
from systems.reports.web.problems import Refused

MOST_BODY = 200_000
T = TypeVar("T")


class AskReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /reports`."""

    source: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    schema: str | dict[str, Any]
    instructions: Annotated[str, msgspec.Meta(max_length=LONGEST_INSTRUCTIONS)] = ""


class AskRetry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /reports/{id}/retry`."""

    keep_answer: bool = True  #: use the recorded answer of the model, or call it again


class AskRevalidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /reports/{id}/revalidate`."""

    schema: str | dict[str, Any] | None = None  #: None for the current schema of the report's own schema name
    complete: bool = True  #: False only checks whether the answer fits


async def read_body(request: Request, kind: type[T]) -> T:
    """Decode the JSON body as *kind*. Raises `Refused` when it is too large or invalid."""
    body = await bounded_body(request, MOST_BODY)
    if body is None:
        detail = f"The request is larger than {MOST_BODY:,} bytes."
        raise Refused(Code.TOO_LARGE, detail, headers={"connection": "close"})
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE as error:
        raise Refused(Code.INVALID_REQUEST, decode_error_text(error)) from None

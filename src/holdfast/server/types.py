"""The values that bodies and queries are made of, and the two kinds of bodies: asked and told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from holdfast.domain.duration import duration
from holdfast.errors import UsageError

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_AT = "2026-11-16T09:00:00Z"
_DATED = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _span(text: str) -> str:
    try:
        duration(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


def _in_range(moment: datetime) -> datetime:
    if not _EARLIEST <= moment < _LATEST:
        raise ValueError("a moment is of the years 1970 to 2199")
    return moment


def _written(moment: object) -> object:
    """A bare number would be taken for seconds of some epoch."""
    if isinstance(moment, datetime) or (isinstance(moment, str) and _DATED.match(moment)):
        return moment
    raise ValueError("write a moment with its zone, e.g. 2026-11-16T09:00:00Z")


def _number(value: object) -> object:
    if isinstance(value, (str, bool)):
        raise ValueError("a number, not in quotes")
    return value


def printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a text of printable characters")
    return text


#: What `duration` reads, without spaces.
_DURATION = (
    r"^([0-9]{1,12}(\.[0-9]{1,9})?(us|ms|s|m|h|d|w)?|([0-9]{1,12}(\.[0-9]{1,9})?(us|ms|s|m|h|d|w)){2,6})$"
)
Span = Annotated[
    str,
    Field(
        max_length=60, pattern=_DURATION, description='A duration: "30s", "1h30m", "2d".', examples=["30s"]
    ),
    AfterValidator(_span),
]
Moment = Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(_in_range), Field(examples=[_AT])]
Word = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(printable)]
Note = Annotated[
    str, Field(max_length=500, description="Why; on record with what was done."), AfterValidator(printable)
]
#: A JSON number: what is written "5" or true is none, and 5.0 is 5 as JSON Schema has it.
Number = BeforeValidator(_number)


def when(field: str, values: Sequence[str], **properties: Any) -> dict[str, Any]:
    """Return the words of JSON Schema that bind *properties* where *field* is one of *values*."""
    return {"if": {"properties": {field: {"enum": list(values)}}}, "then": {"properties": properties}}


def none_of(fields: Sequence[str]) -> dict[str, Any]:
    """Return the words of JSON Schema for an object that has none of *fields*."""
    return {"properties": {name: {"type": "null"} for name in fields}}


def not_both(first: str, second: str) -> dict[str, Any]:
    """Return the words of JSON Schema that refuse two texts beside each other."""
    both = (first, second)
    return {"not": {"required": list(both), "properties": {name: {"type": "string"} for name in both}}}


class RequestModel(BaseModel):
    """A request's body: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", strict=False)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        """Told once: each unknown name would be an error of its own, and there may be a hundred thousand."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields):
            raise ValueError(f"more fields than there are; there are: {', '.join(cls.model_fields)}")
        return given


class ResponseModel(BaseModel):
    """An answer's body."""

    model_config = ConfigDict(extra="forbid")

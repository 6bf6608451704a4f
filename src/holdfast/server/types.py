"""The types of values in bodies and queries, and the base classes of request and response models."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from holdfast.errors import UsageError
from holdfast.redaction import redacted
from holdfast.values.duration import duration

Model = TypeVar("Model", bound=BaseModel)

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
        raise ValueError("a time must be in the years 1970 to 2199")
    return moment


def _written(moment: object) -> object:
    """Refuse a bare number, which would be read as seconds since some epoch."""
    if isinstance(moment, datetime) or (isinstance(moment, str) and _DATED.match(moment)):
        return moment
    raise ValueError("write a time with its zone, e.g. 2026-11-16T09:00:00Z")


def _number(value: object) -> object:
    if isinstance(value, (str, bool)):
        raise ValueError("write a number without quotes")
    return value


def printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("use printable characters only")
    return text


#: What `duration` accepts, without spaces.
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
    str, Field(max_length=500, description="The reason; it is recorded."), AfterValidator(printable)
]
#: A JSON number: "5" and true are refused, and 5.0 is 5, as in JSON Schema.
Number = BeforeValidator(_number)


def searchable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return *arguments* to select jobs by. Raise `UsageError` for a value that answers hide: a search could confirm a guess."""
    for name, value in arguments.items():
        if redacted(name, value) != value:
            raise UsageError(
                f"answers hide the value of {name[:60]!r}, so jobs cannot be selected by it; leave it out"
            )
    return arguments


def when(field: str, values: Sequence[str], **properties: Any) -> dict[str, Any]:
    """Return JSON Schema that applies *properties* where *field* is one of *values*."""
    return {"if": {"properties": {field: {"enum": list(values)}}}, "then": {"properties": properties}}


def none_of(fields: Sequence[str]) -> dict[str, Any]:
    """Return JSON Schema for an object that has none of *fields*."""
    return {"properties": {name: {"type": "null"} for name in fields}}


def not_both(first: str, second: str) -> dict[str, Any]:
    """Return JSON Schema that refuses an object with two texts."""
    both = (first, second)
    return {"not": {"required": list(both), "properties": {name: {"type": "string"} for name in both}}}


class RequestModel(BaseModel):
    """The body of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_many(cls, body: Any) -> Any:
        """Refuse many unknown fields with one error: otherwise each is an error, and there may be a hundred thousand."""
        if isinstance(body, dict) and len(body) > len(cls.model_fields):
            raise ValueError(f"too many fields; there are: {', '.join(cls.model_fields)}")
        return body


class ResponseModel(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(extra="forbid")


def picked(row: object, model: type[BaseModel], **changed: Any) -> dict[str, Any]:
    """Return what *row* has of the fields of *model*, in their order. Those in *changed* have these values instead."""
    return {name: changed[name] if name in changed else getattr(row, name) for name in model.model_fields}


def shows(row: type, *, without: Collection[str] = ()) -> Callable[[type[Model]], type[Model]]:
    """Add the fields of the dataclass *row* to a model of answers, so that they are listed once.

    Fields that the model declares itself stay as they are. Use it only for rows whose fields are all meant for
    callers, except those in *without*.
    """

    def decorate(model: type[Model]) -> type[Model]:
        types = get_type_hints(row)
        found: dict[str, Any] = {
            field.name: (types[field.name], ...) for field in fields(row) if field.name not in without
        }
        found |= {name: (info.annotation, info) for name, info in model.model_fields.items()}
        base: Any = ResponseModel
        made: type[Model] = create_model(
            model.__name__, __base__=base, __module__=model.__module__, __doc__=model.__doc__, **found
        )
        return made

    return decorate

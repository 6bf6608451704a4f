"""One request to the API, as a value: made by `holdfast.client.calls`, sent by a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.errors import UsageError

T_co = TypeVar("T_co", covariant=True)

IDEMPOTENCY_KEY = "Idempotency-Key"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What both kinds of calls are made of. A value of None in *query*, *headers* or *body* is left out."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """The query: a list is the same name several times."""
        return [
            (name, _written(one))
            for name, given in self.query.items()
            if given is not None
            for one in (given if isinstance(given, (list, tuple, set, frozenset)) else (given,))
        ]

    def content(self) -> bytes | None:
        """The body as JSON; an argument that JSON has no form for is a `UsageError`."""
        if self.body is None:
            return None
        try:
            return msgspec.json.encode({name: one for name, one in self.body.items() if one is not None})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(
                f"the arguments cannot be sent as JSON: {error}; send plain values, or a reference to large ones"
            ) from None

    def given_headers(self) -> Iterator[tuple[str, str]]:
        return ((name, value) for name, value in self.headers.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Request, Generic[T_co]):
    """A request that is answered by a `T_co`."""

    answers: Mapping[int, Any]  #: what a status is answered by; `str` is plain text, None is nothing
    takes_key: bool = False  #: a name can be given to it, and then it may be sent again

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again when nobody knows whether it was done: it looks, or has a name."""
        return self.method == "GET" or self.takes_key


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCall(Request):
    """A request for events as they happen."""


def part(value: str) -> str:
    """*value* as one part of a path, whatever is in it."""
    if value in ("", ".", ".."):
        raise UsageError(f"{value!r} is no id and no name; give the one that the API told")
    return quote(value, safe="")


def _written(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)

"""A request to the API as a value: created by `holdfast.client.calls`, sent by a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.errors import UsageError

T_co = TypeVar("T_co", covariant=True)

IDEMPOTENCY_KEY = "Idempotency-Key"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request. A value of None in *query*, *headers* or *body* is left out."""

    method: str
    path: str
    _: KW_ONLY
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """Return the names and values of the query. A list becomes the same name several times."""
        return [
            (name, _query_text(one))
            for name, given in self.query.items()
            if given is not None
            for one in (given if isinstance(given, (list, tuple, set, frozenset)) else (given,))
        ]

    def content(self) -> bytes | None:
        """Return the body as JSON, or None if there is none.

        Raises:
            UsageError: An argument cannot be written as JSON.
        """
        if self.body is None:
            return None
        try:
            return msgspec.json.encode({name: one for name, one in self.body.items() if one is not None})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(
                f"the arguments cannot be sent as JSON: {error}; send plain values, or a reference to large ones"
            ) from None

    def given_headers(self) -> Iterator[tuple[str, str]]:
        """Yield the headers that are not None."""
        return ((name, value) for name, value in self.headers.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Request, Generic[T_co]):
    """A request whose response has a body of type `T_co`."""

    answers: Mapping[int, Any]  #: the type of the body by status; `str` is plain text, None is no body

    @property
    def takes_key(self) -> bool:
        """True if it accepts an Idempotency-Key, which makes it safe to send again."""
        return IDEMPOTENCY_KEY in self.headers

    @property
    def is_repeatable(self) -> bool:
        """True if it is safe to send it again: it only reads, or accepts an Idempotency-Key."""
        return self.method == "GET" or self.takes_key


class ListPage(Protocol):
    """A page of a list."""

    @property
    def next(self) -> str | None:
        """The cursor to the next page; None: this was the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCall(Request):
    """A request for a stream of events."""


def part(value: str) -> str:
    """Return *value* quoted as one segment of a path.

    Raises:
        UsageError: It is empty, `.` or `..`.
    """
    if value in ("", ".", ".."):
        raise UsageError(f"{value!r} is not an id or a name; give the one that the API returned")
    return quote(value, safe="")


def _query_text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)

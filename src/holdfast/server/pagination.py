"""Pages of lists, each with a cursor to the next. A cursor is valid for one list, with its filters, and one reader.

It contains only a position, and every page is filtered for its reader again. So its seal prevents mistakes; security does not depend on
it.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from fastapi import Query

from holdfast.server.problems import Problem

#: The most rows of a page, whatever limit is requested.
MOST = 500
_SEAL = 8
_LONGEST = 400
#: The longest cursor of lists whose position is a name, which may be long.
_LONGEST_NAMED = 12_000

LimitQuery = Annotated[
    int, Query(ge=1, le=10**9, description=f"The maximum number of rows; a page never has more than {MOST}.")
]
CursorQuery = Annotated[
    str | None,
    Query(max_length=_LONGEST, description="`next` of the page before; leave it out for the first page."),
]
NameCursorQuery = Annotated[
    str | None,
    Query(
        max_length=_LONGEST_NAMED, description="`next` of the page before; leave it out for the first page."
    ),
]


class Pages:
    """Makes and reads cursors. *secret* is the same for all servers of a database."""

    def __init__(self, secret: str) -> None:
        self._secret = blake2b(secret.encode(errors="replace"), digest_size=32).digest()

    def seal(self, place: str | None, *of: Any) -> str | None:
        """Return the cursor to what follows *place* in the list that *of* identifies: its name, filters and reader."""
        if place is None:
            return None
        raw = place.encode()
        return urlsafe_b64encode(self._tag(raw, of) + raw).rstrip(b"=").decode()

    def open(self, cursor: str | None, *of: Any) -> str | None:
        """Return the place of a cursor. Raises `Problem` when it was not made for this list."""
        if cursor is None:
            return None
        try:
            raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            place = raw[_SEAL:].decode()
        except (Error, ValueError):
            raise _bad() from None
        if self.seal(place, *of) != cursor:
            raise _bad()
        return place

    def _tag(self, place: bytes, of: tuple[Any, ...]) -> bytes:
        content = msgspec.json.encode(of, enc_hook=str, order="deterministic")
        return blake2b(content + b"\0" + place, key=self._secret, digest_size=_SEAL).digest()


def _bad() -> Problem:
    return Problem("BAD_CURSOR", "this cursor is not for this list; begin again without one")


def capped(limit: int) -> int:
    return min(limit, MOST)

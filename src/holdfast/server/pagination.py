"""Pages: lists are read in pieces, each with a cursor to the next. A cursor is of one list: these filters, this reader.

It holds only a place, and every page is filtered anew by who reads it: its seal keeps mistakes out, not thieves.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from fastapi import Query

from holdfast.server.problems import Problem

#: However many are asked for, a page holds no more.
MOST = 500
_SEAL = 8
_LONGEST = 400
#: Where a name is the place: it may be long.
_LONGEST_NAMED = 12_000

LimitQuery = Annotated[
    int, Query(ge=1, le=10**9, description=f"At most this many; a page never holds more than {MOST}.")
]
CursorQuery = Annotated[
    str | None, Query(max_length=_LONGEST, description="`next` of the page before; leave it out at first.")
]
NameCursorQuery = Annotated[
    str | None,
    Query(max_length=_LONGEST_NAMED, description="`next` of the page before; leave it out at first."),
]


class Pages:
    def __init__(self, secret: str) -> None:
        self._secret = blake2b(secret.encode(errors="replace"), digest_size=32).digest()

    def seal(self, place: str | None, *of: Any) -> str | None:
        """The cursor to what stands behind *place* in the list *of* this name, these filters and this reader."""
        if place is None:
            return None
        raw = place.encode()
        return urlsafe_b64encode(self._tag(raw, of) + raw).rstrip(b"=").decode()

    def open(self, cursor: str | None, *of: Any) -> str | None:
        """The place; a problem for a cursor that was made up, changed, or made for another list."""
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
        said = msgspec.json.encode(of, enc_hook=str, order="deterministic")
        return blake2b(said + b"\0" + place, key=self._secret, digest_size=_SEAL).digest()


def _bad() -> Problem:
    return Problem("BAD_CURSOR", "this cursor is not of this list; begin again without one")


def capped(limit: int) -> int:
    return min(limit, MOST)

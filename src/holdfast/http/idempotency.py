"""`Idempotency-Key`: a request that its sender has named may be sent again, and is done once (draft-ietf-httpapi-07)."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import blake2b

import msgspec
from fastapi import Request as HttpRequest
from pydantic import BaseModel

from holdfast.engine.doorstore import Request
from holdfast.http.problems import Problem
from holdfast.http.routing import caller_of

HEADER = "idempotency-key"
#: So long an answer is kept.
KEPT_FOR = timedelta(hours=24)
#: Tells that the answer is the first one's.
REPLAYED = {"Idempotency-Replayed": "true"}

_LONGEST = 255
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BARE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def named(request: HttpRequest, route: str, content: BaseModel) -> Request | None:
    """The name its sender gave a request, in the scope of route and sender; None where it gave none."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    name = _read(given[0]) if len(given) == 1 else None
    if name is None:
        raise Problem(
            "BAD_REQUEST",
            f'Idempotency-Key is one text of 1 to {_LONGEST} printable ASCII characters, e.g. "8e03978e"',
        )
    caller = caller_of(request)
    said = content.model_dump(mode="json", exclude_unset=True)
    digest = blake2b(msgspec.json.encode(said, order="deterministic"), digest_size=16).digest()
    return Request(f"{route} {caller.scope}", name, digest)


def _read(value: str) -> str | None:
    """A structured-field string in quotes, or the bare text that many send."""
    value = value.strip()
    if found := _QUOTED.fullmatch(value):
        name = re.sub(r'\\(["\\])', r"\1", found[1])
    elif _BARE.fullmatch(value):
        name = value
    else:
        return None
    return name if 1 <= len(name) <= _LONGEST else None


def reused() -> Problem:
    return Problem(
        "IDEMPOTENCY_KEY_REUSED",
        "this Idempotency-Key was sent before with other content; use a new key for a new request",
    )

"""Requests as they come in: who asks, and a body that is bounded before it is read."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from holdfast import Holdfast

_LONGEST_KEY = 200
#: What reading a body may raise.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


async def key_of(app: Holdfast, request: Request) -> Any | None:
    """The key of Holdfast that comes as `Authorization: Bearer …`; None without a valid one."""
    given = request.headers.getlist("authorization")
    scheme, _, secret = (given[0] if given else "").strip().partition(" ")
    secret = secret.strip()
    if len(given) != 1 or scheme.lower() != "bearer" or not 1 <= len(secret) <= _LONGEST_KEY:
        return None
    return await app.find_key(secret)


async def body_of(request: Request, most: int) -> bytes | None:
    """None when it is larger than *most*: the rest is not read."""
    taken = bytearray()
    async for piece in request.stream():
        taken += piece
        if len(taken) > most:
            return None
    return bytes(taken)


def why_unreadable(error: Exception) -> str:
    line = str(error).split("\n", 1)[0][:200]
    return f"The body is not what is asked for here: {line}."

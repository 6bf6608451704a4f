"""Helpers for incoming requests: find the caller's API key, and read a body up to a size limit."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from holdfast import Holdfast

_LONGEST_KEY = 200
#: The exceptions that decoding a JSON body may raise.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


async def bearer_key(app: Holdfast, request: Request) -> Any | None:
    """Return the API key sent as `Authorization: Bearer …`, or None if there is no valid one."""
    headers = request.headers.getlist("authorization")
    scheme, _, secret = (headers[0] if headers else "").strip().partition(" ")
    secret = secret.strip()
    if len(headers) != 1 or scheme.lower() != "bearer":
        return None
    return await find_key(app, secret)


async def find_key(app: Holdfast, secret: str) -> Any | None:
    """Return the valid API key with this secret, or None."""
    return await app.keys.find(secret) if 1 <= len(secret) <= _LONGEST_KEY else None


def is_own_page(request: Request) -> bool:
    """Return whether a page of this server sent the request, or a program that is no browser.

    A page of another site must not act as its visitor. Browsers say in these headers where a request comes from.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    host = request.headers.get("host", "")
    origins = request.headers.getlist("origin")
    return site in ("same-origin", "none") and all(origin.partition("://")[2] == host for origin in origins)


async def bounded_body(request: Request, max_bytes: int) -> bytes | None:
    """Return the body, or None as soon as it exceeds *max_bytes*. The rest is then not read."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            return None
    return bytes(body)


def decode_error_text(error: Exception) -> str:
    """Return a sentence for the caller about an error of `UNREADABLE`."""
    line = str(error).split("\n", 1)[0][:200]
    return f"The request body is not valid: {line}."

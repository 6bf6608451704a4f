"""Responses. Their JSON is encoded directly and not through the models that document it, which would cost every request time."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request, Response

from holdfast.jobs.job import JobRow
from holdfast.jobs.precondition import Precondition, Version

#: Where in a request's scope its token is (see `token_of`).
TOKEN = "holdfast.token"
#: Set in a request's scope when nothing was changed, so that its Idempotency-Key need not be kept.
READ_ONLY = "holdfast.read_only"


encode = msgspec.json.Encoder(enc_hook=str).encode


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with *value* as JSON."""
    return Response(encode(value), status, headers=headers, media_type="application/json")


def tag_of(row: JobRow) -> str:
    """Return the `ETag` of a job: its version, which changes with every move."""
    return f'"{row.version}"'


def wanted_tags(request: Request) -> list[str] | None:
    """Return the versions in `If-Match`, without their quotes, or None if the caller accepts any."""
    header = request.headers.get("if-match")
    if header is None or header.strip() == "*":
        return None
    return [tag[1:-1] for tag in _tags(header) if len(tag) > 2 and tag[0] == tag[-1] == '"']


def precondition_of(request: Request) -> Precondition:
    """Return the precondition of a move: the versions in `If-Match`, and the token of the request."""
    tags = wanted_tags(request)
    versions = None if tags is None else frozenset(filter(None, map(Version.read, tags)))
    return Precondition(versions=versions, token=token_of(request))


def token_of(request: Request) -> str | None:
    """Return the token of a request with an Idempotency-Key, or None. A repeated request has the same token."""
    token: str | None = request.scope.get(TOKEN)
    return token


def is_known(request: Request, tag: str) -> bool:
    """Return whether the caller has this version already (`If-None-Match`)."""
    held = request.headers.get("if-none-match")
    return held is not None and (held.strip() == "*" or tag in _tags(held))


def _tags(header: str) -> list[str]:
    return [one.strip().removeprefix("W/") for one in header.split(",")]

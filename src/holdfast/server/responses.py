"""Answers: JSON in one step, past the model that documents it, because every request waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from fastapi import Request, Response

from holdfast.domain.duration import format_duration
from holdfast.domain.job import JobRow
from holdfast.domain.precondition import Precondition, Version

#: Where in a request's scope its token is.
TOKEN = "holdfast.token"
#: Where it says that nothing was done, so that its name need not be kept.
ONLY_LOOKED = "holdfast.only_looked"


def _foreign(value: Any) -> str:
    return str(value)


encode = msgspec.json.Encoder(enc_hook=_foreign).encode


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers=headers, media_type="application/json")


def spelled(span: timedelta | None) -> str | None:
    return None if span is None else format_duration(span)


def tag_of(row: JobRow) -> str:
    """The version of a job: it changes with every move."""
    return f'"{row.version}"'


def wanted_tags(request: Request) -> list[str] | None:
    """`If-Match`: the versions that the caller wants to act on, without their quotes; None: whichever."""
    wanted = request.headers.get("if-match")
    if wanted is None or wanted.strip() == "*":
        return None
    return [tag[1:-1] for tag in _tags(wanted) if len(tag) > 2 and tag[0] == tag[-1] == '"']


def precondition_of(request: Request) -> Precondition:
    """On what terms the caller wants a job to be moved: as it was read, and once by the name of this request."""
    tags = wanted_tags(request)
    read = None if tags is None else frozenset(filter(None, map(Version.read, tags)))
    return Precondition(versions=read, token=token_of(request))


def token_of(request: Request) -> str | None:
    """Names what is done because of *request*, where its sender has named that."""
    token: str | None = request.scope.get(TOKEN)
    return token


def is_known(request: Request, tag: str) -> bool:
    """`If-None-Match`: the caller has this version already."""
    held = request.headers.get("if-none-match")
    return held is not None and (held.strip() == "*" or tag in _tags(held))


def _tags(header: str) -> list[str]:
    return [one.strip().removeprefix("W/") for one in header.split(",")]

"""Answers: JSON in one step, past the model that documents it, because every request waits for it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from fastapi import Request, Response

from holdfast.domain.duration import spell
from holdfast.domain.job import JobRow
from holdfast.http.problems import Problem


def _foreign(value: Any) -> str:
    return str(value)


_encode = msgspec.json.Encoder(enc_hook=_foreign).encode


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(value), status, headers=headers, media_type="application/json")


def spelled(span: timedelta | None) -> str | None:
    return None if span is None else spell(span)


def tag_of(row: JobRow) -> str:
    """The version of a job: it changes with every move."""
    return f'"{row.generation}-{row.epoch}-{_micros(row.updated_at)}"'


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def must_match(request: Request, tag: str) -> None:
    """`If-Match`: whoever read an older version does not get to act on it."""
    wanted = request.headers.get("if-match")
    if wanted is not None and wanted.strip() != "*" and tag not in _tags(wanted):
        raise Problem("PRECONDITION_FAILED", "it has changed since you read it; read it again")


def is_known(request: Request, tag: str) -> bool:
    """`If-None-Match`: the caller has this version already."""
    held = request.headers.get("if-none-match")
    return held is not None and (held.strip() == "*" or tag in _tags(held))


def _tags(header: str) -> list[str]:
    return [one.strip().removeprefix("W/") for one in header.split(",")]

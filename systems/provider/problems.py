"""Errors in the protocol's own shape."""

from __future__ import annotations

from starlette.responses import JSONResponse


def problem(
    status: int, kind: str, code: str | None, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return JSONResponse(body, status, headers)

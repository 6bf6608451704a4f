"""Error responses in the shape of the chat-completions protocol."""

from __future__ import annotations

from starlette.responses import JSONResponse


def problem(
    status: int, kind: str, code: str | None, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return an error response. *kind* is the protocol's `type` of the error."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return JSONResponse(body, status, headers)

"""Error responses: a code, a one-line message, and the id of the recorded job if there is one."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from systems.reports.codes import CODES, Code

#: Sent while the store is unavailable.
TRY_AGAIN = {"retry-after": "2"}


class Refused(Exception):
    """A request is refused. Handlers raise this, and `answer` is the response."""

    def __init__(
        self,
        code: Code,
        detail: str = "",
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        """*detail* and *status* default to those of the code; *more* holds further members of the body."""
        self.code, self.headers, self.more = code, headers or {}, more or {}
        self.detail = detail or CODES[code].final
        self.status = CODES[code].status if status is None else status
        super().__init__(self.detail)

    def answer(self) -> JSONResponse:
        """Return the refusal as a problem document (RFC 9457)."""
        body = {"type": "about:blank", "status": self.status, "code": self.code.value, "detail": self.detail}
        return JSONResponse(
            body | self.more, self.status, self.headers, media_type="application/problem+json"
        )


def no_such_report() -> Refused:
    """Return the refusal for an id that names no report."""
    return Refused(Code.EXPIRED, "There is no such report here; it may have been removed by retention.")

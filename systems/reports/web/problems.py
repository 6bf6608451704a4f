"""How a refusal is told: a code, one line, and the job on record where there is one."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from systems.reports.codes import CODES, Code

#: What the store cannot answer now it may answer in a moment.
TRY_AGAIN = {"retry-after": "2"}


class Refused(Exception):
    """Raised where a request cannot be granted."""

    def __init__(
        self,
        code: Code,
        detail: str = "",
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        """*detail* and *status* stand in for those of the code; *more* is told beside them."""
        self.code, self.headers, self.more = code, headers or {}, more or {}
        self.detail = detail or CODES[code].final
        self.status = CODES[code].status if status is None else status
        super().__init__(self.detail)

    def answer(self) -> JSONResponse:
        """As RFC 9457 has it."""
        body = {"type": "about:blank", "status": self.status, "code": self.code.value, "detail": self.detail}
        return JSONResponse(
            body | self.more, self.status, self.headers, media_type="application/problem+json"
        )


def no_such_report() -> Refused:
    return Refused(Code.EXPIRED, "There is no such report here; it may have been removed by retention.")

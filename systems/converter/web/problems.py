"""How a refusal is told: one of the ten codes, one line, and the job on record where there is one."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from systems.converter.codes import CODES, Code

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
    ) -> None:
        """*detail* and *status* stand in for those of the code."""
        self.code, self.headers = code, headers or {}
        self.job_id: str | None = None  #: the job that keeps it on record
        self.detail = detail or CODES[code].final
        self.status = CODES[code].status if status is None else status
        super().__init__(self.detail)

    def answer(self) -> JSONResponse:
        """As RFC 9457 has it."""
        body: dict[str, Any] = {
            "type": "about:blank",
            "status": self.status,
            "code": self.code.value,
            "detail": self.detail,
        }
        if self.job_id is not None:
            body["job_id"] = self.job_id
        return JSONResponse(body, self.status, self.headers, media_type="application/problem+json")


def no_such_job() -> Refused:
    return Refused(Code.EXPIRED, "There is no such job here; it may have been removed by retention.")


def too_many_uploads(wait: int) -> Refused:
    """Return the refusal of an upload beyond `UPLOAD_RATE`; it is not on record, or a flood would fill the store."""
    detail = f"These are too many uploads at a time. Send the file again in {wait} s."
    return Refused(
        Code.UNKNOWN, detail, status=429, headers={"retry-after": str(wait), "connection": "close"}
    )

"""Error responses: one of the ten codes, a line of detail, and the id of the job that records a refusal."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from systems.converter.codes import CODES, Code

#: The headers of a response while the store does not answer.
TRY_AGAIN = {"retry-after": "2"}


class Refused(Exception):
    """A request cannot be granted. It becomes the error response."""

    def __init__(
        self,
        code: Code,
        detail: str = "",
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """*detail* and *status* replace those of the code."""
        self.code, self.headers = code, headers or {}
        self.job_id: str | None = None  #: the job that records the refusal
        self.detail = detail or CODES[code].final
        self.status = CODES[code].status if status is None else status
        super().__init__(self.detail)

    def response(self) -> JSONResponse:
        """Return the response, in the format of RFC 9457."""
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
    """Return the refusal for an unknown job id."""
    return Refused(Code.EXPIRED, "There is no such job; it may have been removed by retention.")


def too_many_uploads(wait: int) -> Refused:
    """Return the refusal of an upload beyond `UPLOAD_RATE`.

    No job records it, or a flood would fill the store.
    """
    detail = f"There were too many uploads in a short time. Send the file again in {wait} s."
    return Refused(
        Code.UNKNOWN, detail, status=429, headers={"retry-after": str(wait), "connection": "close"}
    )

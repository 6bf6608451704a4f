"""How a refusal is told: `error` and `message` as the source document names them, and the members of RFC 9457 beside them."""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, datetime
from typing import Any

from fastapi.responses import JSONResponse

from holdfast import Conflict, HoldfastError, StoreError, UnknownJob
from holdfast.credits import InsufficientCredits, QuotaExceeded
from holdfast.logs import Log
from systems.screenshots.codes import CODES, Code
from systems.screenshots.failures import ShotFailed

log = Log("screenshots.web")

#: What the store cannot answer now it may answer in a moment.
TRY_AGAIN = {"retry-after": "2"}
#: code → (status, its line)
KNOWN: dict[str, tuple[int, str]] = {
    "VALIDATION_ERROR": (400, "The request is not what is asked for here."),
    "UNAUTHENTICATED": (
        401,
        "This needs a key: holdfast keys create --role owner --owner user:7, then Authorization: Bearer …",
    ),
    "INSUFFICIENT_CREDITS": (402, "The account has too few credits; add some and send it again."),
    "FORBIDDEN": (403, "This belongs to somebody else."),
    "NOT_FOUND": (404, "There is no such screenshot here; it may have been removed by retention."),
    "CONCURRENT_MODIFICATION": (409, "Job is currently being processed by another worker"),
    "NOT_READY": (409, "There is no picture yet."),
    "EXPIRED": (410, "The picture was kept for its time and then removed; ask for a new one."),
    "TOO_LARGE": (413, "The request is too large."),
    "QUOTA_EXCEEDED": (429, "The quota of this time is used up."),
    "INTERNAL": (500, "Something unexpected went wrong; its reason is in the server's log."),
    "UNAVAILABLE": (503, "The database cannot be reached now; send the same request again in a moment."),
}


class Refused(Exception):
    """Raised where a request cannot be granted."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """*message* and *status* stand in for those of the code; *more* is told beside them."""
        known_status, line = KNOWN[code] if code in KNOWN else (CODES[Code(code)].status, "")
        self.code, self.message = code, message or line
        self.status = known_status if status is None else status
        self.headers, self.more = headers or {}, more
        super().__init__(self.message)

    def answer(self) -> JSONResponse:
        body = {
            "error": self.code,
            "message": self.message,
            **self.more,
            "type": f"urn:holdfast:problem:{self.code.lower().replace('_', '-')}",
            "title": self.code.replace("_", " ").capitalize(),
            "status": self.status,
            "detail": self.message,
            "code": self.code,
        }
        return JSONResponse(body, self.status, self.headers, media_type="application/problem+json")


def refusal_of(error: Exception) -> Refused:
    """Return the refusal that an error of this system or of the engine means to the caller."""
    match error:
        case Refused():
            return error
        case ShotFailed():
            return Refused(error.code.value, error.line(final=True))
        case InsufficientCredits():
            return Refused(
                "INSUFFICIENT_CREDITS",
                str(error),
                requiredCredits=error.required,
                availableCredits=error.available,
            )
        case QuotaExceeded():
            wait = max(1, math.ceil((error.resets_at - datetime.now(UTC)).total_seconds()))
            return Refused(
                "QUOTA_EXCEEDED",
                str(error),
                headers={"retry-after": str(wait)},
                quota=error.quota,
                limit=error.limit,
                resetsAt=error.resets_at.isoformat(),
            )
        case UnknownJob():
            return Refused("NOT_FOUND")
        case Conflict():
            return Refused("CONCURRENT_MODIFICATION")
        case StoreError():
            log.warning("store.unavailable", reason=str(error))
            return Refused("UNAVAILABLE", headers=TRY_AGAIN)
        case HoldfastError():
            return Refused("VALIDATION_ERROR", str(error))
    if _is_of_a_database(error):
        log.warning("database.unavailable", reason=type(error).__name__)
        return Refused("UNAVAILABLE", headers=TRY_AGAIN)
    log.error("request.failed", error=type(error).__name__)
    return Refused("INTERNAL")


def _is_of_a_database(error: Exception) -> bool:
    """Of our own tables, whose drivers speak for themselves. asyncpg is there only where it is used."""
    home = type(error).__module__.partition(".")[0]
    return isinstance(error, sqlite3.Error | ConnectionError | TimeoutError) or home == "asyncpg"

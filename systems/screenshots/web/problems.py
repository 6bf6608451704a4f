"""Error responses, with the source document's members `error` and `message` and those of RFC 9457."""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, datetime
from typing import Any

from fastapi.responses import JSONResponse

from holdfast import Conflict, HoldfastError, QuotaExceeded, StoreError, UnknownJob
from holdfast.contrib.credits import InsufficientCredits
from holdfast.logging import Log
from systems.screenshots.codes import CODES, Code
from systems.screenshots.failures import ShotFailed

log = Log("screenshots.web")

#: Sent while the store is unavailable.
TRY_AGAIN = {"retry-after": "2"}
#: The status and the message of each code.
KNOWN: dict[str, tuple[int, str]] = {
    "VALIDATION_ERROR": (400, "The request is invalid."),
    "UNAUTHENTICATED": (
        401,
        "This needs a key: holdfast keys create --role owner --owner user:7, then Authorization: Bearer …",
    ),
    "INSUFFICIENT_CREDITS": (402, "The account has too few credits; add some and send it again."),
    "FORBIDDEN": (403, "This belongs to another owner."),
    "NOT_FOUND": (404, "There is no such screenshot here; it may have been removed by retention."),
    "CONCURRENT_MODIFICATION": (409, "Job is currently being processed by another worker"),
    "NOT_READY": (409, "There is no picture yet."),
    "EXPIRED": (410, "The picture was removed by retention; request a new one."),
    "TOO_LARGE": (413, "The request is too large."),
    "QUOTA_EXCEEDED": (429, "The quota of this period is used up."),
    "INTERNAL": (500, "Something unexpected went wrong; its reason is in the server's log."),
    "UNAVAILABLE": (503, "The database cannot be reached now; send the same request again in a moment."),
}


class Refused(Exception):
    """A request is refused. Handlers raise this, and `answer` is the response."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        """*message* and *status* default to those of the code; *more* holds further members of the body."""
        known_status, text = KNOWN[code] if code in KNOWN else (CODES[Code(code)].status, "")
        self.code, self.message = code, message or text
        self.status = known_status if status is None else status
        self.headers, self.more = headers or {}, more
        super().__init__(self.message)

    def answer(self) -> JSONResponse:
        """Return the refusal as a problem document (RFC 9457)."""
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
    """Return the refusal for an error of this system or of the engine."""
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
                quota=error.quota.removeprefix("manual_"),  # customers know no other retries
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
    if _is_database_error(error):
        log.warning("database.unavailable", reason=type(error).__name__)
        return Refused("UNAVAILABLE", headers=TRY_AGAIN)
    log.error("request.failed", error=type(error).__name__)
    return Refused("INTERNAL")


def _is_database_error(error: Exception) -> bool:
    """Return whether a driver raised *error* for the system's own tables.

    asyncpg's errors are recognised by their module, because asyncpg is an optional dependency.
    """
    home = type(error).__module__.partition(".")[0]
    return isinstance(error, sqlite3.Error | ConnectionError | TimeoutError) or home == "asyncpg"

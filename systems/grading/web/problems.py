"""Error responses in the format of RFC 9457: a status, a code and one line of detail."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast import Conflict, StoreError, UnknownJob, UsageError
from holdfast.logging import Log
from systems.grading.dlq import NoBroker, NoSuchLetter

log = Log("grading.web")


class Refused(Exception):
    """A request cannot be granted. It becomes the error response."""

    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.headers = status, code, detail, headers or {}

    def response(self) -> JSONResponse:
        """Return the error response."""
        body = {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.detail}
        return JSONResponse(body, self.status, self.headers, media_type="application/problem+json")


def no_such_submission() -> Refused:
    """Return the refusal for an unknown submission."""
    return Refused(404, "NOT_FOUND", "There is no such submission.")


def handle_errors(site: FastAPI) -> None:
    """Register the handlers that turn exceptions into error responses."""

    async def respond(request: Request, error: Exception) -> Response:
        return _refusal(request, error).response()

    for kind in (Refused, StoreError, UnknownJob, UsageError, Conflict, NoBroker, NoSuchLetter):
        site.add_exception_handler(kind, respond)
    for other in (HTTPException, RequestValidationError, ClientDisconnect, Exception):
        site.add_exception_handler(other, respond)


def _refusal(request: Request, error: Exception) -> Refused:
    match error:
        case Refused():
            return error
        case UnknownJob():
            return no_such_submission()
        case NoSuchLetter():
            return Refused(404, "NOT_FOUND", str(error))
        case Conflict():
            return Refused(409, "CONFLICT", str(error))
        case NoBroker():
            return Refused(503, "BROKER_AWAY", str(error), {"retry-after": "2"})
        case StoreError():
            log.warning("store.unavailable", reason=str(error))
            return Refused(503, "TRY_AGAIN", "The store is unavailable. Try again.", {"retry-after": "2"})
        case RequestValidationError():
            return Refused(422, "INVALID", "A parameter of this request is not valid.")
        case UsageError():
            return Refused(400, "INVALID", str(error))
        case ClientDisconnect():
            return Refused(400, "CUT_OFF", "The request was cut off.")
        case HTTPException():
            texts = {404: "There is no such page.", 405: "This method is not allowed here."}
            detail = texts.get(error.status_code, "This request is not valid.")
            return Refused(error.status_code, "INVALID", detail)
    log.error("request.failed", error=type(error).__name__)
    return Refused(500, "UNKNOWN", "Something unexpected went wrong.")

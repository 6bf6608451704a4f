"""How a refusal is told: a code, a status and one line, as RFC 9457 has it."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast import Conflict, StoreError, UnknownJob, UsageError
from holdfast.logs import Log
from systems.grading.dlq import NoBroker, NoSuchLetter

log = Log("grading.web")


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.headers = status, code, detail, headers or {}

    def answer(self) -> JSONResponse:
        body = {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.detail}
        return JSONResponse(body, self.status, self.headers, media_type="application/problem+json")


def no_such_submission() -> Refused:
    return Refused(404, "NOT_FOUND", "There is no such submission.")


def tell_errors(site: FastAPI) -> None:
    async def tell(request: Request, error: Exception) -> Response:
        return _refusal(request, error).answer()

    for kind in (Refused, StoreError, UnknownJob, UsageError, Conflict, NoBroker, NoSuchLetter):
        site.add_exception_handler(kind, tell)
    for other in (HTTPException, RequestValidationError, ClientDisconnect, Exception):
        site.add_exception_handler(other, tell)


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
            return Refused(
                503, "TRY_AGAIN", "The store does not answer now. Try again.", {"retry-after": "2"}
            )
        case RequestValidationError():
            return Refused(422, "INVALID", "A parameter of this request cannot be understood.")
        case UsageError():
            return Refused(400, "INVALID", str(error))
        case ClientDisconnect():
            return Refused(400, "CUT_OFF", "The request was cut off.")
        case HTTPException():
            words = {404: "There is nothing here.", 405: "This cannot be done here."}
            return Refused(
                error.status_code, "INVALID", words.get(error.status_code, "It cannot be understood.")
            )
    log.error("request.failed", error=type(error).__name__)
    return Refused(500, "UNKNOWN", "Something unexpected went wrong.")

"""Errors as problem documents (RFC 9457), with the only table of their codes and statuses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from typing import Any, NamedTuple

import msgspec
from fastapi import HTTPException, Response
from fastapi.exceptions import RequestValidationError

from holdfast.errors import (
    Changed,
    Conflict,
    Forbidden,
    HoldfastError,
    JobFailed,
    LeaseLost,
    PayloadError,
    Refused,
    ResultExpired,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
    UnknownJob,
    UnknownKey,
    UnknownOperation,
    UnknownTask,
    UnknownWebhook,
    UsageError,
)
from holdfast.jobs.codes import lookup
from holdfast.redaction import redact_text

MEDIA_TYPE = "application/problem+json"
_IANA = "https://iana.org/assignments/http-problem-types#"


class ProblemCode(NamedTuple):
    status: int
    title: str
    type: str | None = None  #: the registered type of this problem, if there is one


#: The codes. They are stable: programs rely on them.
CODES: dict[str, ProblemCode] = {
    "BAD_REQUEST": ProblemCode(400, "The request cannot be read"),
    "BAD_JSON": ProblemCode(400, "The body is not valid JSON"),
    "BAD_CURSOR": ProblemCode(400, "The cursor is not for this list"),
    "KEY_IN_URL": ProblemCode(400, "A key must not be in a URL"),
    "UNAUTHENTICATED": ProblemCode(401, "A valid key is needed"),
    "INSUFFICIENT_CREDITS": ProblemCode(402, "The paying account has too few credits"),
    "FORBIDDEN": ProblemCode(403, "This key may not do that"),
    "NOT_FOUND": ProblemCode(404, "Not found"),
    "EXPIRED": ProblemCode(lookup("EXPIRED").status, "It was removed by retention"),
    "METHOD_NOT_ALLOWED": ProblemCode(405, "The method is not allowed"),
    "CONFLICT": ProblemCode(409, "Its state does not allow that"),
    "NOT_READY": ProblemCode(409, "It has not ended yet"),
    "JOB_FAILED": ProblemCode(409, "It ended without a result"),
    "IDEMPOTENCY_KEY_IN_FLIGHT": ProblemCode(409, "A request with this key is being carried out"),
    "SECRET_SHOWN_ONCE": ProblemCode(409, "It was done before, and its secret is not stored"),
    "PRECONDITION_FAILED": ProblemCode(412, "It has changed since it was read"),
    "TOO_LARGE": ProblemCode(413, "The body is too large"),
    "UNSUPPORTED_MEDIA_TYPE": ProblemCode(415, "The body must be plain JSON"),
    "INVALID": ProblemCode(422, "The request is not valid"),
    "UNKNOWN_TASK": ProblemCode(422, "There is no such task"),
    "IDEMPOTENCY_KEY_REUSED": ProblemCode(422, "This key was used for another request"),
    "QUOTA_EXCEEDED": ProblemCode(429, "The quota is used up", f"{_IANA}quota-exceeded"),
    "RATE_LIMITED": ProblemCode(429, "Too many requests", f"{_IANA}quota-exceeded"),
    "INTERNAL": ProblemCode(500, "Internal error"),
    "UNAVAILABLE": ProblemCode(503, "Temporarily unavailable", f"{_IANA}temporary-reduced-capacity"),
}

#: The first class that fits decides. The text replaces the words of an error that are not meant for callers.
ERRORS: tuple[tuple[type[HoldfastError], str, str | None], ...] = (
    (UnknownJob, "NOT_FOUND", "no job has this id"),
    (UnknownWebhook, "NOT_FOUND", "no webhook has this id"),
    (UnknownKey, "NOT_FOUND", "no valid key has this id"),
    (UnknownOperation, "NOT_FOUND", "no operation has this id"),
    (UnknownTask, "UNKNOWN_TASK", None),
    (PayloadError, "INVALID", None),
    (UsageError, "INVALID", None),
    (Forbidden, "FORBIDDEN", None),
    (Changed, "PRECONDITION_FAILED", None),
    (Conflict, "CONFLICT", None),
    (LeaseLost, "CONFLICT", None),
    (Refused, "CONFLICT", None),
    (JobFailed, "JOB_FAILED", None),
    (ResultExpired, "EXPIRED", "it was removed by retention; enqueue the job again"),
    (
        StoreUnavailable,
        "UNAVAILABLE",
        "the database cannot be reached or written to now; send the same request again later",
    ),
    (SchemaMismatch, "UNAVAILABLE", "the database schema is of another version; run `holdfast migrate`"),
    (StoreError, "INTERNAL", "the database refused; see the server's log"),
    (HoldfastError, "INTERNAL", "internal error; see the server's log"),
)

#: How long to wait before a request that met an unreachable database is sent again.
RETRY_AFTER_SECONDS = 1
_LONGEST_DETAIL = 1000
_MOST_ERRORS = 20


class Problem(HTTPException):
    """Ends a request with a problem document.

    *code* is a key of `CODES`, *detail* one line that states what happened and what to do, and *facts* are further members.
    """

    def __init__(
        self, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> None:
        super().__init__(CODES[code].status, detail, dict(headers or {}))
        self.code, self.facts = code, facts


def problem_of(error: HoldfastError) -> Problem:
    """Return the problem for an error of Holdfast."""
    for kind, code, words in ERRORS:
        if isinstance(error, kind):
            wait = _wait(error)
            headers = None if wait is None else {"Retry-After": wait}
            detail = words or " ".join(redact_text(str(error)).split())
            if isinstance(error, Refused) and error.code in CODES:
                code = error.code
            return Problem(code, detail, headers=headers, **_facts(error))
    raise AssertionError("the last line of ERRORS fits every error")


def invalid(error: RequestValidationError) -> Problem:
    """Return the problem for an invalid request: what is wrong and where, never what was sent."""
    found = [
        {"pointer": _pointer(one["loc"]), "detail": _line(one["msg"])[:300]}
        for one in error.errors()[:_MOST_ERRORS]
    ]
    first = found[0] if found else {"pointer": "#", "detail": "it is not valid"}
    return Problem("INVALID", f"{first['pointer'][2:] or 'the body'}: {first['detail']}", errors=found)


def _pointer(place: tuple[str | int, ...]) -> str:
    """Return a JSON pointer, without the names that pydantic gives to the members of a union."""
    steps = [_line(step) for step in place if not str(step).startswith(("function-", "constrained-"))]
    return "/".join(["#", *(step.replace("~", "~0").replace("/", "~1") for step in steps)])[:200]


def _line(text: object) -> str:
    """Replace the characters that could break or hide a line: the caller may have chosen these names."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def _wait(error: HoldfastError) -> str | None:
    """Return when the same request may succeed, as a number of seconds or as a time."""
    match error:
        case StoreUnavailable() | SchemaMismatch():
            return str(RETRY_AFTER_SECONDS)
        case Refused() if isinstance(resets_at := error.facts.get("resets_at"), datetime):
            return format_datetime(resets_at, usegmt=True)
    return None


def _facts(error: HoldfastError) -> dict[str, Any]:
    match error:
        case Conflict() if error.twin:
            return {"job_id": error.twin}
        case Refused():
            return error.facts if error.code in CODES else {"reason": error.code} | error.facts
    return {}


def respond(problem: Problem, instance: str) -> Response:
    """Return the response. *instance* identifies this occurrence, in the log too."""
    code = CODES[problem.code]
    members = {
        "type": code.type or f"urn:holdfast:problem:{problem.code.lower().replace('_', '-')}",
        "title": code.title,
        "status": code.status,
        "detail": str(problem.detail)[:_LONGEST_DETAIL],
        "code": problem.code,
        "instance": f"urn:uuid:{instance}",
        **problem.facts,
    }
    body = msgspec.json.encode(members, enc_hook=str)
    return Response(body, code.status, headers=problem.headers, media_type=MEDIA_TYPE)

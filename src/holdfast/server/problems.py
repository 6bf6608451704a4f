"""What goes wrong becomes a problem document (RFC 9457). This is the one table of codes, statuses and errors."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import format_datetime
from typing import Any, NamedTuple

import msgspec
from fastapi import HTTPException, Response
from fastapi.exceptions import RequestValidationError

from holdfast.domain.codes import lookup
from holdfast.errors import (
    Changed,
    Conflict,
    Forbidden,
    HoldfastError,
    InsufficientCredits,
    JobFailed,
    LeaseLost,
    PayloadError,
    QuotaExceeded,
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
from holdfast.redaction import redact_text

MEDIA_TYPE = "application/problem+json"
_IANA = "https://iana.org/assignments/http-problem-types#"


class ProblemCode(NamedTuple):
    status: int
    title: str
    type: str | None = None  #: where others have named this kind of problem before us


#: Our codes: programs may rely on them.
CODES: dict[str, ProblemCode] = {
    "BAD_REQUEST": ProblemCode(400, "The request cannot be read"),
    "BAD_JSON": ProblemCode(400, "The body is not proper JSON"),
    "BAD_CURSOR": ProblemCode(400, "The cursor is not of this list"),
    "KEY_IN_URL": ProblemCode(400, "A key must not be in a URL"),
    "UNAUTHENTICATED": ProblemCode(401, "A valid key is needed"),
    "INSUFFICIENT_CREDITS": ProblemCode(402, "The paying account has too few credits"),
    "FORBIDDEN": ProblemCode(403, "This key may not do that"),
    "NOT_FOUND": ProblemCode(404, "Not found"),
    "EXPIRED": ProblemCode(lookup("EXPIRED").status, "It was kept for its time and then removed"),
    "METHOD_NOT_ALLOWED": ProblemCode(405, "Not by this method"),
    "CONFLICT": ProblemCode(409, "The state it is in does not allow that"),
    "NOT_READY": ProblemCode(409, "It has not ended yet"),
    "JOB_FAILED": ProblemCode(409, "It ended without a result"),
    "IDEMPOTENCY_KEY_IN_FLIGHT": ProblemCode(409, "A request of this key is being carried out"),
    "TOLD_ONCE": ProblemCode(409, "It was done, and its secret was told once"),
    "PRECONDITION_FAILED": ProblemCode(412, "It has changed since it was read"),
    "TOO_LARGE": ProblemCode(413, "The body is too large"),
    "UNSUPPORTED_MEDIA_TYPE": ProblemCode(415, "The body must be plain JSON"),
    "INVALID": ProblemCode(422, "Something in the request is not as it must be"),
    "UNKNOWN_TASK": ProblemCode(422, "There is no such task"),
    "IDEMPOTENCY_KEY_REUSED": ProblemCode(422, "This key was used for another request"),
    "QUOTA_EXCEEDED": ProblemCode(429, "The quota of this time is used up", f"{_IANA}quota-exceeded"),
    "RATE_LIMITED": ProblemCode(429, "Too many requests", f"{_IANA}quota-exceeded"),
    "INTERNAL": ProblemCode(500, "Something unexpected went wrong"),
    "UNAVAILABLE": ProblemCode(503, "Not now", f"{_IANA}temporary-reduced-capacity"),
}

#: The first that fits decides: the code, and what is said instead of the error's own words where they are not for callers.
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
    (InsufficientCredits, "INSUFFICIENT_CREDITS", None),
    (QuotaExceeded, "QUOTA_EXCEEDED", None),
    (JobFailed, "JOB_FAILED", None),
    (ResultExpired, "EXPIRED", "it was kept for its time and then removed; enqueue the job again"),
    (
        StoreUnavailable,
        "UNAVAILABLE",
        "the database cannot be reached or written to now; send the same request again later",
    ),
    (SchemaMismatch, "UNAVAILABLE", "the database is not of this version; run `holdfast migrate`"),
    (StoreError, "INTERNAL", "the database refused; its reason is in the server's log"),
    (HoldfastError, "INTERNAL", "its reason is in the server's log"),
)

#: How long to wait before a request that met an unreachable database is sent again.
RETRY_AFTER_SECONDS = 1
_LONGEST_DETAIL = 1000
_MOST_ERRORS = 20


class Problem(HTTPException):
    """Raise it to end a request: *code* of the table, one line that says what happened and what to do, and facts."""

    def __init__(
        self, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> None:
        super().__init__(CODES[code].status, detail, dict(headers or {}))
        self.code, self.facts = code, facts


def problem_of(error: HoldfastError) -> Problem:
    for kind, code, words in ERRORS:
        if isinstance(error, kind):
            wait = _wait(error)
            headers = None if wait is None else {"Retry-After": wait}
            said = words or " ".join(redact_text(str(error)).split())
            return Problem(code, said, headers=headers, **_facts(error))
    raise AssertionError("the last line of ERRORS fits every error")


def invalid(error: RequestValidationError) -> Problem:
    """What is wrong where; never what was sent."""
    found = [
        {"pointer": _pointer(one["loc"]), "detail": _line(one["msg"])[:300]}
        for one in error.errors()[:_MOST_ERRORS]
    ]
    first = found[0] if found else {"pointer": "#", "detail": "it is not as it must be"}
    return Problem("INVALID", f"{first['pointer'][2:] or 'the body'}: {first['detail']}", errors=found)


def _pointer(place: tuple[str | int, ...]) -> str:
    """A JSON pointer. Where a value may be of several kinds, the checker's own names of them are no part of its place."""
    steps = [_line(step) for step in place if not str(step).startswith(("function-", "constrained-"))]
    return "/".join(["#", *(step.replace("~", "~0").replace("/", "~1") for step in steps)])[:200]


def _line(text: object) -> str:
    """Of names that the caller has chosen, nothing that breaks a line or hides it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def _wait(error: HoldfastError) -> str | None:
    """Return when the same request may succeed, as a number of seconds or as a time."""
    match error:
        case StoreUnavailable() | SchemaMismatch():
            return str(RETRY_AFTER_SECONDS)
        case QuotaExceeded():
            return format_datetime(error.resets_at, usegmt=True)
    return None


def _facts(error: HoldfastError) -> dict[str, Any]:
    match error:
        case Conflict() if error.twin:
            return {"job_id": error.twin}
        case InsufficientCredits():
            return {"required": error.required, "available": error.available}
        case QuotaExceeded():
            return {"quota": error.quota, "limit": error.limit, "resets_at": error.resets_at}
    return {}


def respond(problem: Problem, instance: str) -> Response:
    """The answer. *instance* names this occurrence, in the log too."""
    code = CODES[problem.code]
    told = {
        "type": code.type or f"urn:holdfast:problem:{problem.code.lower().replace('_', '-')}",
        "title": code.title,
        "status": code.status,
        "detail": str(problem.detail)[:_LONGEST_DETAIL],
        "code": problem.code,
        "instance": f"urn:uuid:{instance}",
        **problem.facts,
    }
    body = msgspec.json.encode(told, enc_hook=str)
    return Response(body, code.status, headers=problem.headers, media_type=MEDIA_TYPE)

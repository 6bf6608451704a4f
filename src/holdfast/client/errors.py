"""The exceptions that a client raises. All are a `HoldfastError`.

ClientError
├── Unreachable          no response came, even after retries
├── BadAnswer            the response is not one of a Holdfast API
└── Problem              the API refused; programs rely on `code`
    ├── BadRequest       400  BAD_REQUEST, BAD_JSON, BAD_CURSOR, KEY_IN_URL
    ├── Unauthenticated  401  no key, or one that is not valid any more
    ├── Unpaid           402  the paying account has too few credits: `facts` has `required` and `available`
    ├── Forbidden        403  this key may not do that
    ├── NotFound         404  it does not exist
    │   └── Gone              it existed, and was removed after its retention
    ├── Conflict         409  its current state does not allow that
    │   ├── InFlight          the same request, sent before, is still being carried out
    │   ├── SecretShownOnce   it was done before, and its response held a secret, which is shown only once
    │   ├── NotReady          it has not ended yet
    │   └── JobFailed         it ended without a result
    ├── Changed          412  it has changed since it was read
    ├── TooLarge         413  the body is too large
    ├── Invalid          422  a part of the request is not valid; `errors` says which
    ├── RateLimited      429  too many requests; wait `retry_after` seconds
    │   └── QuotaExceeded     the quota of a day or month is used up; `facts` has `resets_at`
    └── ServerError      5xx  the server failed
        └── Unavailable  503  not available now; wait `retry_after` seconds
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import HoldfastError


class ClientError(HoldfastError):
    """A request did not bring what it asked for. The base of all errors of a client."""


class Unreachable(ClientError):
    """No response came. A request that changes something may or may not have been carried out."""


class BadAnswer(ClientError):
    """The response is not one of this API: it came from a proxy, another program or a much newer server."""


class Problem(ClientError):
    """The API refused the request and says why (RFC 9457)."""

    def __init__(self, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status: int = problem["status"]
        self.code: str = problem["code"]  #: stable; programs may rely on it
        self.detail: str = problem.get("detail") or problem.get("title") or ""  #: for people
        #: the id of this occurrence; the server's log has it too
        self.instance: str = problem.get("instance") or ""
        #: each invalid part of the request and why it is invalid
        self.errors: list[dict[str, str]] = problem.get("errors") or []
        self.facts = dict(problem)  #: the whole problem document
        self.retry_after = retry_after  #: how many seconds to wait, if the server said so
        super().__init__(f"{self.code}: {self.detail}")


class BadRequest(Problem): ...


class Unauthenticated(Problem): ...


class Unpaid(Problem): ...


class Forbidden(Problem): ...


class NotFound(Problem): ...


class Conflict(Problem): ...


class InFlight(Conflict): ...


class SecretShownOnce(Conflict): ...


class NotReady(Conflict): ...


class JobFailed(Conflict): ...


class Gone(NotFound): ...


class Changed(Problem): ...


class TooLarge(Problem): ...


class Invalid(Problem): ...


class RateLimited(Problem): ...


class QuotaExceeded(RateLimited): ...


class ServerError(Problem): ...


class Unavailable(ServerError): ...


_BY_CODE: dict[str, type[Problem]] = {
    "EXPIRED": Gone,
    "IDEMPOTENCY_KEY_IN_FLIGHT": InFlight,
    "SECRET_SHOWN_ONCE": SecretShownOnce,
    "NOT_READY": NotReady,
    "JOB_FAILED": JobFailed,
    "QUOTA_EXCEEDED": QuotaExceeded,
}
_BY_STATUS: dict[int, type[Problem]] = {
    400: BadRequest,
    401: Unauthenticated,
    402: Unpaid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Changed,
    413: TooLarge,
    422: Invalid,
    429: RateLimited,
    500: ServerError,
    503: Unavailable,
}


def problem_of(status: int, media: str, content: bytes, retry_after: float | None) -> ClientError:
    """Return the error for a response. A code that this client does not know is mapped by its status."""
    problem: Any = None
    if media == "application/problem+json":
        try:
            problem = msgspec.json.decode(content)
        except msgspec.DecodeError:
            pass
    if isinstance(problem, dict) and isinstance(problem.get("code"), str):
        problem["status"] = status
        kind = _BY_CODE.get(problem["code"]) or _BY_STATUS.get(status) or Problem
        return kind(problem, retry_after)
    if status in (429, 503):  # from a proxy, and it means the same
        code = "RATE_LIMITED" if status == 429 else "UNAVAILABLE"
        detail = "a proxy in front of the server refused for now; send it again later"
        return _BY_STATUS[status]({"status": status, "code": code, "detail": detail}, retry_after)
    if status in (502, 504):
        return Unreachable(f"a proxy answered {status}: it could not reach the server; send it again later")
    return BadAnswer(
        f"the response is {status} {media or 'without a type'}, which is not one of Holdfast's API; check the URL"
    )

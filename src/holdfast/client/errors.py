"""What a client raises. All are a `HoldfastError`.

ClientError
├── Unreachable          no answer came, however often it was asked
├── BadAnswer            somebody answered, but not a Holdfast API
└── Problem              the API refused; `code` is what to rely on
    ├── BadRequest       400  BAD_REQUEST, BAD_JSON, BAD_CURSOR, KEY_IN_URL
    ├── Unauthenticated  401  no key, or one that is not known any more
    ├── Unpaid           402  the paying account has too few credits: `facts` has `required` and `available`
    ├── Forbidden        403  this key may not do that
    ├── NotFound         404  there is no such thing
    │   └── Gone              there was: it was kept for its time and then removed
    ├── Conflict         409  the state it is in does not allow that
    │   ├── InFlight          the same request, sent before, is still being carried out
    │   ├── ToldOnce          it was done before, and its answer held a secret, which is told once
    │   ├── NotReady          it has not ended yet
    │   └── JobFailed         it ended without a result
    ├── Changed          412  it has changed since it was read
    ├── TooLarge         413  the body is too large
    ├── Invalid          422  something in the request is not as it must be; `errors` says where
    ├── RateLimited      429  too many requests; `retry_after` seconds to wait
    │   └── QuotaExceeded     the quota of a day or month is used up; `facts` has `resets_at`
    └── ServerError      5xx  something went wrong there
        └── Unavailable  503  not now; `retry_after`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import HoldfastError


class ClientError(HoldfastError):
    """Something came between the client and what it asked for."""


class Unreachable(ClientError):
    """No answer came. Whether the request was carried out is not known, unless it is one that only looks."""


class BadAnswer(ClientError):
    """What came back is not an answer of this API: a proxy, another program, or a much newer server."""


class Problem(ClientError):
    """The API refused, and says why (RFC 9457)."""

    def __init__(self, told: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status: int = told["status"]
        self.code: str = told["code"]  #: stable; programs may rely on it
        self.detail: str = told.get("detail") or told.get("title") or ""  #: for people
        self.instance: str = told.get("instance") or ""  #: names this occurrence; the server's log has it too
        self.errors: list[dict[str, str]] = told.get("errors") or []  #: what is wrong where
        self.facts = dict(told)  #: all that was told
        self.retry_after = retry_after  #: seconds
        super().__init__(f"{self.code}: {self.detail}")


class BadRequest(Problem): ...


class Unauthenticated(Problem): ...


class Unpaid(Problem): ...


class Forbidden(Problem): ...


class NotFound(Problem): ...


class Conflict(Problem): ...


class InFlight(Conflict): ...


class AnswerShownOnce(Conflict): ...


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
    "TOLD_ONCE": AnswerShownOnce,
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
    """The error that an answer tells of. A code that is newer than this client is known by its status."""
    told: Any = None
    if media == "application/problem+json":
        try:
            told = msgspec.json.decode(content)
        except msgspec.DecodeError:
            pass
    if isinstance(told, dict) and isinstance(told.get("code"), str):
        told["status"] = status
        kind = _BY_CODE.get(told["code"]) or _BY_STATUS.get(status) or Problem
        return kind(told, retry_after)
    if status in (429, 503):  # a proxy's own word, and it means the same
        code = "RATE_LIMITED" if status == 429 else "UNAVAILABLE"
        detail = "something in front of the server refused for now; send it again later"
        return _BY_STATUS[status]({"status": status, "code": code, "detail": detail}, retry_after)
    if status in (502, 504):
        return Unreachable(f"a proxy answered {status}: it could not reach the server; send it again later")
    return BadAnswer(
        f"the answer is {status} {media or 'without a type'}, not one of Holdfast's; check the URL"
    )

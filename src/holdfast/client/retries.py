"""Decide whether a request is sent again, and after how long. No I/O.

After a 429, or if no connection could be made, nothing was done, so every request may be sent again. After a
503, or if the connection broke, the outcome is unknown. Then a request is sent again only if it just reads or
carries an Idempotency-Key. It may arrive while the first one is still being carried out (`InFlight`); then it
is sent again later.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.client.errors import (
    ClientError,
    InFlight,
    Problem,
    QuotaExceeded,
    RateLimited,
    Unavailable,
    Unreachable,
)
from holdfast.errors import UsageError

#: The errors that may pass soon.
_TRANSIENT = (RateLimited, Unavailable, Unreachable, InFlight)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRetries:
    """How often and how long a client sends a request again."""

    tries: int = 5  #: including the first one
    base_seconds: float = 0.2  #: the pause before the second try; it doubles each time
    stream_tries: int = 10  #: tries to continue a stream that was cut off
    #: the longest pause; if the server asks for more, the error is raised at once
    longest_seconds: float = 30.0

    def __post_init__(self) -> None:
        if min(self.tries, self.stream_tries) < 1 or not 0 <= self.base_seconds <= self.longest_seconds:
            raise UsageError(
                "retries need at least 1 try, and pauses from 0 s to longest_seconds; correct them"
            )


def pause_seconds(
    retries: RequestRetries,
    attempt: int,
    error: ClientError,
    *,
    was_sent: bool,
    is_repeatable: bool,
    chance: float,
    tries: int | None = None,
) -> float | None:
    """Return the seconds to wait after *attempt* (counted from 1) ended in *error*, or None to give up.

    *chance*, from 0 to 1, spreads clients that failed together.
    """
    if attempt >= (tries or retries.tries) or not isinstance(error, _TRANSIENT):
        return None
    if isinstance(error, QuotaExceeded):  # for hours or days
        return None
    is_undone = isinstance(error, RateLimited) or not was_sent
    if not (is_undone or is_repeatable):
        return None
    retry_after = error.retry_after if isinstance(error, Problem) else None
    if retry_after is not None:
        return None if retry_after > retries.longest_seconds else retry_after + chance * retries.base_seconds
    # Clamp the exponent too: 2.0 ** 2000 overflows.
    longest = min(retries.base_seconds * 2.0 ** min(attempt - 1, 30), retries.longest_seconds)
    return longest * (0.5 + chance / 2)

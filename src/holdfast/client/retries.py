"""When a request is sent again, and after how long. Pure.

429 says that nothing was done, and so does a connection that could not be made: whatever it was may be sent again. After 503, or
when a connection broke under way, nobody knows: then only what looks, or carries an Idempotency-Key, is sent again. That may
come while the first one is still being carried out (`InFlight`), and is sent once more.
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

#: What may be over in a moment.
_PASSING = (RateLimited, Unavailable, Unreachable, InFlight)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRetries:
    """How long a client goes on asking."""

    tries: int = 5  #: the first one counts
    base_seconds: float = 0.2  #: the pause before the second; it doubles
    stream_tries: int = 10  #: to take up a stream that was cut off
    longest_seconds: float = 30.0  #: a pause is never longer; who is told to wait longer gives up at once

    def __post_init__(self) -> None:
        if min(self.tries, self.stream_tries) < 1 or not 0 <= self.base_seconds <= self.longest_seconds:
            raise UsageError("patience is at least 1 try, and pauses of 0 s or more; correct it")


def pause_seconds(
    patience: RequestRetries,
    attempt: int,
    error: ClientError,
    *,
    was_sent: bool,
    is_repeatable: bool,
    chance: float,
    tries: int | None = None,
) -> float | None:
    """How long to wait after the *attempt* (counted from 1) that ended in *error*; None: do not send it again.

    *chance*, 0 to 1, keeps clients that failed together from coming back together.
    """
    if attempt >= (tries or patience.tries) or not isinstance(error, _PASSING):
        return None
    if isinstance(error, QuotaExceeded):  # for hours or days
        return None
    is_undone = isinstance(error, RateLimited) or not was_sent
    if not (is_undone or is_repeatable):
        return None
    asked = error.retry_after if isinstance(error, Problem) else None
    if asked is not None:
        return None if asked > patience.longest_seconds else asked + chance * patience.base_seconds
    # Clamp the exponent too: 2 ** 2000 is no float.
    longest = min(patience.base_seconds * 2.0 ** min(attempt - 1, 30), patience.longest_seconds)
    return longest * (0.5 + chance / 2)

"""The retry policy of the reports (P2): 4 attempts, with waits of 30, 120 and 480 s, each ±20 %.

ADR 0009 says why.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast import Retry
from holdfast.policies import table

MAX_ATTEMPTS = 4
FIRST_WAIT = timedelta(seconds=30)
#: The factor between one wait and the next.
FACTOR = 4
JITTER = "20%"


def retry_policy(max_attempts: int = MAX_ATTEMPTS, first: timedelta = FIRST_WAIT) -> Retry:
    """Return the policy for this number of attempts and *first* wait.

    Each wait is 4 times the last, up to an hour.
    """
    waits = [min(first * FACTOR**nth, timedelta(hours=1)) for nth in range(min(max(max_attempts - 1, 1), 12))]
    return Retry(max_attempts, backoff=table(waits), jitter=JITTER, cap=timedelta(hours=2))

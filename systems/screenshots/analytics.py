"""Retry analytics: success by attempt, trends, costs and anomalies, computed from the books (E76, S7).

An hour is an anomaly when its share of attempts that were retried is above the mean of the hours before it
(at most 24, at least 3) by more than 3 of their standard deviations and by more than 0.05, and it had at
least 20 attempts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from systems.screenshots.records import Books

HOUR, DAY = 3600, 86_400
LEAST_ATTEMPTS, LEAST_HISTORY, MOST_HISTORY = 20, 3, 24
DEVIATIONS, LEAST_RISE = 3.0, 0.05


class Span(NamedTuple):
    """The attempts that ended in one hour or day, and the retries by hand in it."""

    begins: int  #: seconds since the epoch
    attempts: int
    succeeded: int
    retried: int
    failed: int
    seconds: float
    manual: int

    @property
    def retry_ratio(self) -> float:
        return self.retried / self.attempts if self.attempts else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "from": datetime.fromtimestamp(self.begins, UTC).isoformat(),
            "attempts": self.attempts,
            "succeeded": self.succeeded,
            "retried": self.retried,
            "failed": self.failed,
            "manualRetries": self.manual,
            "seconds": round(self.seconds, 3),
            "retryRatio": round(self.retry_ratio, 4),
        }


def anomalies(hours: Sequence[Span]) -> list[dict[str, Any]]:
    """Return the anomalies among *hours*, which are oldest first. Hours without attempts are ignored."""
    anomalous: list[dict[str, Any]] = []
    history: list[float] = []
    for hour in (one for one in hours if one.attempts):
        before = history[-MOST_HISTORY:]
        if len(before) >= LEAST_HISTORY and hour.attempts >= LEAST_ATTEMPTS:
            mean = sum(before) / len(before)
            deviation = math.sqrt(sum((one - mean) ** 2 for one in before) / len(before))
            if hour.retry_ratio > mean + max(DEVIATIONS * deviation, LEAST_RISE):
                anomalous.append(
                    {**hour.as_json(), "usualRatio": round(mean, 4), "deviation": round(deviation, 4)}
                )
        history.append(hour.retry_ratio)
    return anomalous


def by_day(hours: Sequence[Span]) -> list[Span]:
    """Return the sums of *hours* for each day (UTC), oldest first."""
    days: dict[int, list[Span]] = {}
    for hour in hours:
        days.setdefault(hour.begins // DAY * DAY, []).append(hour)
    return [
        Span(
            begins,
            sum(one.attempts for one in some),
            sum(one.succeeded for one in some),
            sum(one.retried for one in some),
            sum(one.failed for one in some),
            sum(one.seconds for one in some),
            sum(one.manual for one in some),
        )
        for begins, some in sorted(days.items())
    ]


async def analyse(books: Books, *, since: float) -> dict[str, Any]:
    """Return the analytics of attempts that ended since *since*, in seconds since the epoch."""
    hours = await _hours(books, since)
    return {
        "since": datetime.fromtimestamp(since, UTC).isoformat(),
        "byAttempt": await _by_attempt(books, since),
        "byCode": await _by_code(books, since),
        "hours": [hour.as_json() for hour in hours],
        "days": [day.as_json() for day in by_day(hours)],
        "cost": await _cost(books, since),
        "anomalies": anomalies(hours),
    }


async def _hours(books: Books, since: float) -> list[Span]:
    rows = await books.run(
        """SELECT hour, count(*), sum(CASE outcome WHEN 'complete' THEN 1 ELSE 0 END),
             sum(CASE WHEN outcome IN ('retry', 'reclaimed') THEN 1 ELSE 0 END),
             sum(CASE WHEN outcome IN ('failed', 'timed_out') THEN 1 ELSE 0 END), sum(seconds)
           FROM screenshots_attempt WHERE hour >= $1 GROUP BY hour ORDER BY hour""",
        int(since // HOUR),
    )
    retries_by_hour = await books.run(
        "SELECT hour, count(*) FROM screenshots_retry WHERE hour >= $1 GROUP BY hour", int(since // HOUR)
    )
    manual = {int(hour): int(number) for hour, number in retries_by_hour}
    return [
        Span(
            int(hour) * HOUR,
            int(ended),
            int(done),
            int(retried),
            int(failed),
            float(seconds),
            manual.get(int(hour), 0),
        )
        for hour, ended, done, retried, failed, seconds in rows
    ]


async def _by_attempt(books: Books, since: float) -> list[dict[str, Any]]:
    rows = await books.run(
        """SELECT task, attempt, count(*), sum(CASE outcome WHEN 'complete' THEN 1 ELSE 0 END)
           FROM screenshots_attempt WHERE hour >= $1 GROUP BY task, attempt ORDER BY task, attempt""",
        int(since // HOUR),
    )
    return [
        {
            "type": task,
            "attempt": int(attempt),
            "ended": int(ended),
            "succeeded": int(succeeded),
            "successRate": round(int(succeeded) / int(ended), 4),
        }
        for task, attempt, ended, succeeded in rows
    ]


async def _by_code(books: Books, since: float) -> dict[str, int]:
    rows = await books.run(
        "SELECT code, count(*) FROM screenshots_attempt WHERE hour >= $1 AND code <> '' GROUP BY code ORDER BY code",
        int(since // HOUR),
    )
    return {code: int(number) for code, number in rows}


async def _cost(books: Books, since: float) -> dict[str, Any]:
    [(retry_seconds, failed_seconds, retry_credits)] = await books.run(
        """SELECT coalesce(sum(CASE WHEN attempt > 1 OR again = 1 THEN seconds ELSE 0 END), 0),
             coalesce(sum(CASE outcome WHEN 'complete' THEN 0 ELSE seconds END), 0),
             coalesce(sum(CASE WHEN outcome = 'complete' AND again = 1 THEN price ELSE 0 END), 0)
           FROM screenshots_attempt WHERE hour >= $1""",
        int(since // HOUR),
    )
    [(compensated,)] = await books.run(
        "SELECT coalesce(sum(credits), 0) FROM screenshots_breach WHERE found_at >= $1 AND compensated_at IS NOT NULL",
        since,
    )
    return {
        "retrySeconds": round(float(retry_seconds), 3),  #: of attempts after the first
        "failedSeconds": round(float(failed_seconds), 3),  #: of attempts without a picture
        "retryCredits": int(retry_credits),  #: charged for pictures that were retried by hand
        "compensationCredits": int(compensated),
    }

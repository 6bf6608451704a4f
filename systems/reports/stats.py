"""Figures on the reports (P6), computed from the system's own tables, so that they survive restarts."""

from __future__ import annotations

from typing import Any, NamedTuple

from systems.reports.codes import Code
from systems.reports.records import Records

#: The codes of complete answers that could not be used as a report.
SCHEMA_FAILURES = (Code.SCHEMA_MISMATCH.value, Code.NOT_JSON.value)
MILLION = 1_000_000


class Stats(NamedTuple):
    """Figures on the reports whose first attempt began in a period.

    Shares are of the reports that have ended.
    """

    reports: int
    succeeded: int
    failed: int
    failed_by_code: dict[str, int]
    retries: int
    retry_rate: float  #: the share of all reports that were retried
    final_failure_rate: float
    mean_seconds_to_success: float
    p95_seconds_to_success: float
    schema_failure_share: float
    captures: int
    calls: int
    tokens_in: int
    tokens_out: int
    cost: float  #: in the currency of the prices
    cost_per_success: float
    cost_of_retries: float  #: of repeated calls

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


async def take_stats(records: Records, *, since: float = 0.0) -> Stats:
    """Return the figures of the reports since *since*, in seconds since the epoch."""
    run = records.database.run
    by_status = await run(
        """SELECT status, coalesce(code, ''), count(*), coalesce(sum(retries), 0),
             coalesce(sum(CASE WHEN retries > 0 THEN 1 ELSE 0 END), 0)
           FROM reports_report WHERE begun_at >= $1 GROUP BY status, coalesce(code, '')""",
        since,
    )
    total, retries, retried = (sum(int(row[place]) for row in by_status) for place in (2, 3, 4))
    succeeded = sum(int(row[2]) for row in by_status if row[0] == "succeeded")
    codes = {str(row[1]): int(row[2]) for row in by_status if row[0] == "failed"}
    failed = sum(codes.values())
    [(mean,)] = await run(
        "SELECT avg(seconds) FROM reports_report WHERE status = 'succeeded' AND begun_at >= $1", since
    )
    slow = await run(
        """SELECT seconds FROM reports_report WHERE status = 'succeeded' AND begun_at >= $1
           ORDER BY seconds LIMIT 1 OFFSET $2""",
        since,
        max(0, -(-succeeded * 95 // 100) - 1),
    )
    [(captures,)] = await run("SELECT count(*) FROM reports_capture WHERE at >= $1", since)
    [(calls, tokens_in, tokens_out, cost, cost_of_retries)] = await run(
        """SELECT count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), coalesce(sum(cost), 0),
             coalesce(sum(CASE WHEN step <> 'llm' THEN cost ELSE 0 END), 0) FROM reports_call WHERE at >= $1""",
        since,
    )
    return Stats(
        reports=total,
        succeeded=succeeded,
        failed=failed,
        failed_by_code=codes,
        retries=retries,
        retry_rate=_share(retried, total),
        final_failure_rate=_share(failed, failed + succeeded),
        mean_seconds_to_success=float(mean or 0),
        p95_seconds_to_success=float(slow[0][0] or 0) if slow else 0.0,
        schema_failure_share=_share(sum(codes.get(code, 0) for code in SCHEMA_FAILURES), failed + succeeded),
        captures=int(captures),
        calls=int(calls),
        tokens_in=int(tokens_in),
        tokens_out=int(tokens_out),
        cost=int(cost) / MILLION,
        cost_per_success=_share(int(cost) / MILLION, succeeded),
        cost_of_retries=int(cost_of_retries) / MILLION,
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

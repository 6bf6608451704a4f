"""Count jobs, cheaply enough to do it every few seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.jobs.job import Lane
from holdfast.jobs.stats import RECENT, RECENT_ROWS, JobStats, LaneStats
from holdfast.stores.postgres.enqueue_plan import SQL

#: How many delayed jobs one query reads at most, in the order of their time. Jobs that wait for their key are skipped.
_MOST_DELAYED = 1000


async def stats(connection: asyncpg.Connection[Any], most: int) -> JobStats:
    rows = await connection.fetch(SQL["stats"], most)
    [(delayed, overdue, dead)] = await connection.fetch(
        """SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast.deferred LIMIT $1::bigint) x),
                  (SELECT holdfast.clock() - min(x.run_at)
                     FROM (SELECT run_at, key FROM holdfast.deferred WHERE run_at <= holdfast.clock()
                            ORDER BY run_at, id LIMIT $2::int) x WHERE x.key IS NULL),
                  (SELECT count(*) FROM (SELECT 1 FROM holdfast.dead_letter LIMIT $1::bigint) x)""",
        most,
        _MOST_DELAYED,
    )
    [(retried, in_vain)] = await connection.fetch(
        """SELECT count(*), count(*) FILTER (WHERE x.kind <> 3)
             FROM (SELECT kind, at, attempts FROM holdfast.event ORDER BY seq DESC LIMIT $1::int) x, unnest(x.attempts) a
            WHERE a > 1 AND x.kind IN (3, 4, 5) AND x.at > holdfast.clock() - $2::interval""",
        RECENT_ROWS,
        RECENT,
    )
    return JobStats(
        lines={
            Lane(*row[:5]): LaneStats(waiting=row["waiting"], active=row["active"] or 0, oldest=row["oldest"])
            for row in rows
        },
        delayed=delayed,
        overdue=overdue or timedelta(),
        dead_letters=dead,
        retried=retried,
        failed_retries=in_vain,
    )

"""The backlog of messages, topic by topic."""

from __future__ import annotations

from datetime import timedelta

from holdfast.engine.tables.sql import Transacts, moment, read
from holdfast.outbox.model import Lag

# Lines 0 to 2 are those of waiting messages, 3 is that of parked ones. Only SQLite has published ones in this table, as line 4.
_LAGS = """SELECT topic, count(*) FILTER (WHERE line < 3) AS waiting, count(*) FILTER (WHERE line = 3) AS parked,
       min(since) FILTER (WHERE line < 3) AS since, (SELECT holdfast.clock()) AS now
  FROM holdfast.outbox WHERE line < 4 GROUP BY topic"""


async def read_lags(store: Transacts) -> list[Lag]:
    """Return the lag of every topic that has waiting or parked messages, by name."""
    return sorted(
        Lag(
            row["topic"],
            row["waiting"],
            row["parked"],
            max(moment(row["now"]) - moment(row["since"]), timedelta()) if row["waiting"] else None,
        )
        for row in await read(store, _LAGS)
    )

"""The table of quotas: how much of a day or a month is used. `LaneStore.charge` writes it."""

from __future__ import annotations

from holdfast.engine.tables.sql import Transacts, moment, read
from holdfast.values.periods import period_begins

_USED = "SELECT period, begins, used, holdfast.clock() AS now FROM holdfast.usage WHERE scope = $1::text AND used > 0"


async def quota_use(store: Transacts, scope: str) -> dict[str, int]:
    """Return how much this scope has used of each period, such as {"day": 12, "month": 340}."""
    return {
        row["period"]: row["used"]
        for row in await read(store, _USED, scope)
        if moment(row["begins"]) >= period_begins(row["period"], moment(row["now"]))
    }

"""Whether a process can work, and what the database says of itself: for probes and for `holdfast doctor`.

A server or a command makes this namespace for itself, `Diagnostics(app.runtime)`.
"""

from __future__ import annotations

import builtins
from typing import Any

from holdfast.engine.namespace import Namespace
from holdfast.health.inputs import not_ready
from holdfast.jobs.job import Expired, Lane


class Diagnostics(Namespace):
    """Facts for the people who operate a database."""

    async def not_ready(self) -> str | None:
        """Return why this process cannot work now, without internal details, or None if it can."""
        return await not_ready(self._engine)

    async def store_facts(self) -> dict[str, Any]:
        """Return the kind, version, settings and sizes of the database, as JSON data."""
        return await (await self._engine()).store.queries.health()

    async def violations(self) -> builtins.list[str]:
        """Return what is wrong with the stored rows; nothing in a healthy database."""
        return await (await self._engine()).store.queries.violations()

    async def expired(self, limit: int) -> builtins.list[Expired]:
        """Return up to *limit* leases that have ended and were not reclaimed yet."""
        return await (await self._engine()).store.expired(limit)

    async def depths(self) -> dict[Lane, int]:
        """Return how many jobs wait in each lane."""
        return await (await self._engine()).store.lanes.depths()

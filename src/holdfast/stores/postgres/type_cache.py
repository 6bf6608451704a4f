"""A connection that does not ask for the array types again, which are the same in every database.

asyncpg looks up array types in the catalog on each new connection, by a query that is dear to plan: a quarter of what an
app with a worker costs the server from its start to its first job. The arrays of built-in types are the same everywhere,
so one query serves all connections of the process. asyncpg has no public method for it; if its private one is renamed, each
connection asks for itself again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

#: boolean, bytea, smallint, integer, text, bigint, double precision, timestamptz, interval, uuid and jsonb, each as an array.
_OURS = frozenset({1000, 1001, 1005, 1007, 1009, 1016, 1022, 1185, 1187, 2951, 3807})
_told: list[Any] = []

if TYPE_CHECKING:
    _Base = asyncpg.Connection[asyncpg.Record]
else:
    _Base = asyncpg.Connection


class _Asked(NamedTuple):
    """Stands for the statement that asks. asyncpg prepares nothing again after it."""

    name: str


class Connection(_Base):
    offset = "0"  #: how far the clock of tests was moved here

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
        base: Any = super()
        if not _OURS.issuperset(typeoids):
            types, statement = await base._introspect_types(typeoids, timeout)
        elif _told:
            types, statement = _told, _Asked("kept")
        else:
            types, statement = await base._introspect_types(_OURS, timeout)
            _told[:] = types
        return types, statement

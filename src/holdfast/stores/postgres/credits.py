"""The ledger on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.credit import Sold
from holdfast.domain.job import JobId
from holdfast.stores.credits import COLUMNS, SqlBooks

#: Without the view `jobs`, which tells ten times as much of each.
_SOLD = """SELECT j.id, n.task, j.owner, coalesce(g.generation, 1),
       CASE f.state WHEN 3 THEN 'complete' WHEN 4 THEN 'failed' WHEN 5 THEN 'cancelled' ELSE 'queued' END
  FROM holdfast.job j LEFT JOIN holdfast.life g ON g.job_id = j.id JOIN holdfast.lane n ON n.id = coalesce(g.lane, j.lane)
  LEFT JOIN holdfast.done f ON f.job_id = j.id WHERE j.id = ANY ($1::uuid[])"""


class PostgresBooks(SqlBooks):
    async def _run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return await self._transaction.execute(sql, *parameters)

    async def _add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            types = COLUMNS[table]
            await self._run(
                f"INSERT INTO holdfast.{table} ({', '.join(types)}) SELECT * FROM {_unnest(types)}", *_turned(rows)
            )  # fmt: skip

    async def _set(self, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            changes = ", ".join(f"{name} = x.{name}" for name in columns)
            names = ", ".join(("id", *columns))
            await self._run(
                f"UPDATE holdfast.{table} AS t SET {changes} FROM {_unnest({'id': 'text', **columns})} AS x({names})"
                " WHERE t.id = x.id", *_turned(rows),
            )  # fmt: skip

    def _moment(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value

    async def sold(self, job_ids: Collection[JobId]) -> list[Sold]:
        return self._sold(await self._run(_SOLD, list(job_ids)))


def _unnest(types: Mapping[str, str]) -> str:
    return f"unnest({', '.join(f'${place}::{kind}[]' for place, kind in enumerate(types.values(), 1))})"


def _turned(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Columns, where there were rows."""
    return [list(column) for column in zip(*rows, strict=True)]

"""The ledger on SQLite: the same statements, in SQLite's words."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from holdfast.domain.credit import Sold
from holdfast.domain.job import JobId
from holdfast.stores.credits import COLUMNS, SqlBooks
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.times import micros, moment

#: PostgreSQL's words → SQLite's. There is one writer, so nothing has to be locked.
_WORDS = (
    (re.compile(r"= ANY \(\$(\d+)::\w+\[\]\)"), r"IN (SELECT value FROM json_each(?\1))"),
    (re.compile(r"::\w+"), ""),
    (re.compile(r"\bholdfast\."), "holdfast_"),
    (re.compile(r"\$(\d+)"), r"?\1"),
    (re.compile(r" FOR UPDATE"), ""),
)
_SOLD = """SELECT j.uid, l.task, j.owner, j.generation,
       CASE j.phase WHEN 3 THEN 'complete' WHEN 4 THEN 'failed' WHEN 5 THEN 'cancelled' ELSE 'queued' END
  FROM holdfast_job j JOIN holdfast_lane l ON l.id = j.lane WHERE j.uid IN (SELECT value FROM json_each(?))"""


@lru_cache(maxsize=100)
def _translated(sql: str) -> str:
    for theirs, ours in _WORDS:
        sql = theirs.sub(ours, sql)
    return sql


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return micros(value)
        case list():
            return to_json(value)
        case bool():
            return int(value)
    return value


class SqliteBooks(SqlBooks):
    async def _run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return await self._transaction.execute(_translated(sql), *map(_value, parameters))

    async def _add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            names = COLUMNS[table]
            values = ", ".join(f"value ->> {place}" for place in range(len(names)))
            await self._transaction.execute(
                f"INSERT INTO holdfast_{table} ({', '.join(names)}) SELECT {values} FROM json_each(?)", _listed(rows)
            )  # fmt: skip

    async def _set(self, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            changes = ", ".join(f"{name} = x.value ->> {place}" for place, name in enumerate(columns, 1))
            await self._transaction.execute(
                f"UPDATE holdfast_{table} SET {changes} FROM json_each(?) AS x WHERE holdfast_{table}.id = x.value ->> 0",
                _listed(rows),
            )

    def _moment(self, value: Any) -> datetime:
        return moment(value)

    async def sold(self, job_ids: Collection[JobId]) -> list[Sold]:
        return self._sold(await self._transaction.execute(_SOLD, to_json(list(job_ids))))


def _listed(rows: Sequence[Sequence[Any]]) -> str:
    return to_json([[_value(value) for value in row] for row in rows])

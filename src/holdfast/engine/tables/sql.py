"""One dialect of SQL for every store.

A statement is written in PostgreSQL's SQL and runs in a transaction of any store. For SQLite, and for the memory store, which
has a SQLite database in RAM, it is translated:

- Each parameter has a cast (`$1::text`), which PostgreSQL needs to know its type.
- `holdfast.name` is a table of Holdfast, and `holdfast.clock()` the time by the store's clock.
- A list is compared with `= ANY ($1::text[])` or `<> ALL ($1::text[])`.
- `least`, `greatest` and `FOR UPDATE` have their usual meaning. SQLite's `min` and `max` of several values are NULL as soon as
  one of them is: wrap what may be NULL in `coalesce`.
- Parameters may be datetimes, timedeltas, bytes, booleans, numbers, texts, None, and lists of these without bytes.

SQLite stores moments as whole microseconds. Read the columns of a row by name, and moments through `moment`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.engine.ports import Row, Transaction

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CLOCK = "holdfast.clock()"
_LITERAL = re.compile(r"('[^']*')")
_PARAMETER = re.compile(r"\$(\d+)")
#: PostgreSQL's words and SQLite's. SQLite has one writer at a time, so nothing has to be locked.
_WORDS = (
    (re.compile(r"= ANY \(\$(\d+)::\w+\[\]\)"), r"IN (SELECT value FROM json_each(?\1))"),
    (re.compile(r"<> ALL \(\$(\d+)::\w+\[\]\)"), r"NOT IN (SELECT value FROM json_each(?\1))"),
    (re.compile(r"::\w+(\[\])?"), ""),
    (re.compile(r"\bholdfast\."), "holdfast_"),
    (_PARAMETER, r"?\1"),
    (re.compile(r"\bleast\("), "min("),
    (re.compile(r"\bgreatest\("), "max("),
    (re.compile(r"\bFOR (NO KEY )?UPDATE( OF \w+)?( SKIP LOCKED)?"), ""),
)


class Transacts(Protocol):
    """A store, as far as tables need one."""

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T: ...


# -- statements ---------------------------------------------------------------------------------------------------------
async def fetch(transaction: Transaction, sql: str, *parameters: Any) -> Sequence[Row]:
    """Run one statement in *transaction* and return its rows."""
    if transaction.dialect == "postgres":
        return await transaction.execute(sql, *parameters)
    statement = _for_sqlite(sql)
    encoded = [_encode(value) for value in parameters]
    if statement.uses_clock:
        encoded.append(_micros(await transaction.now()))
    return await transaction.execute(statement.text, *encoded)


async def read(store: Transacts, sql: str, *parameters: Any) -> Sequence[Row]:
    """Run one statement that only reads. It takes no lock, and costs one round trip on PostgreSQL."""
    return await store.transact(lambda transaction: fetch(transaction, sql, *parameters), reads=True)


async def write(store: Transacts, sql: str, *parameters: Any) -> Sequence[Row]:
    """Run one statement that writes and commit it. On PostgreSQL it needs no BEGIN and no COMMIT around it."""
    return await store.transact(lambda transaction: fetch(transaction, sql, *parameters), atomic=False)


async def insert(
    transaction: Transaction,
    table: str,
    columns: Mapping[str, str],
    rows: Sequence[Sequence[Any]],
    *,
    key: Sequence[str] = (),
    clock: str | None = None,
    merged: str | None = "",
) -> None:
    """Insert many rows by one statement.

    Args:
        transaction: The statement runs here.
        table: A table of Holdfast, without the schema.
        columns: The name of each column and its type on PostgreSQL. None may be bytea.
        rows: The values of each row, in the order of *columns*.
        key: The columns that identify a row. A row that is there already gets the new values.
        clock: One more column, which gets the time by the store's clock.
        merged: What a row that is there already gets instead of the new values: SQL such as `n = thing.n + excluded.n`; None: nothing.
    """
    if not rows:
        return
    source, values, given = _many(transaction, columns, rows)
    names = list(columns)
    if clock is not None:
        names.append(clock)
        values.append(_CLOCK)
    sql = f"INSERT INTO holdfast.{table} AS {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {source} WHERE true"
    if key:
        changes = merged or ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
        sql += f" ON CONFLICT ({', '.join(key)}) DO " + (
            "NOTHING" if merged is None else f"UPDATE SET {changes}"
        )
    await fetch(transaction, sql, *given)


async def update(
    transaction: Transaction,
    table: str,
    key: tuple[str, str],
    columns: Mapping[str, str],
    rows: Sequence[Sequence[Any]],
) -> None:
    """Change many rows by one statement.

    Args:
        transaction: The statement runs here.
        table: A table of Holdfast, without the schema.
        key: The name and the type of the column that identifies a row.
        columns: The name and the type of each column to change.
        rows: For each row the value of its key, then the new values in the order of *columns*.
    """
    if not rows:
        return
    name, kind = key
    source, (known, *values), given = _many(transaction, {name: kind, **columns}, rows)
    changes = ", ".join(f"{column} = {value}" for column, value in zip(columns, values, strict=True))
    sql = f"UPDATE holdfast.{table} AS t SET {changes} FROM {source} WHERE t.{name} = {known}"
    await fetch(transaction, sql, *given)


def _many(
    transaction: Transaction, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
) -> tuple[str, list[str], list[Any]]:
    """Return a source of *rows* for FROM, named `x`, its columns, and the parameters that the source needs."""
    if transaction.dialect == "postgres":
        arrays = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(columns.values(), 1))
        by_column = [list(column) for column in zip(*rows, strict=True)]
        return (
            f"unnest({arrays}) AS x({', '.join(columns)})",
            [f"x.{column}" for column in columns],
            by_column,
        )
    return "json_each($1) AS x", [f"x.value ->> {place}" for place in range(len(columns))], [rows]


# -- values -------------------------------------------------------------------------------------------------------------
def moment(value: Any) -> datetime:
    """Return the moment in a column of a row."""
    return value if isinstance(value, datetime) else _EPOCH + timedelta(microseconds=value)


def maybe_moment(value: Any) -> datetime | None:
    """Return the moment in a column that may be NULL."""
    return None if value is None else moment(value)


def to_json(value: Any) -> str:
    """Encode what a column of type text holds."""
    return _encoder.encode(value).decode()


#: Decode what `to_json` has encoded.
from_json: Callable[[str], Any] = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder()


def _encode(value: Any) -> Any:
    match value:
        case datetime():
            return _micros(value)
        case timedelta():
            return value // _MICROSECOND
        case list() | tuple():
            return to_json(_plain(value))
    return value


def _plain(value: Any) -> Any:
    """Return *value*, which becomes JSON, with its moments as numbers."""
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else _encode(value)


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


# -- translation --------------------------------------------------------------------------------------------------------
class _Statement(NamedTuple):
    text: str
    uses_clock: bool  #: the moment is its last parameter


@lru_cache(maxsize=500)
def _for_sqlite(sql: str) -> _Statement:
    # Every second part is a literal, which stays as it is.
    parts = _LITERAL.split(sql)
    last = max((int(number) for part in parts[::2] for number in _PARAMETER.findall(part)), default=0)
    parts[::2] = [_translate(part, f"?{last + 1}") for part in parts[::2]]
    return _Statement("".join(parts), any(_CLOCK in part for part in _LITERAL.split(sql)[::2]))


def _translate(part: str, clock: str) -> str:
    part = part.replace(_CLOCK, clock)
    for pattern, replacement in _WORDS:
        part = pattern.sub(replacement, part)
    return part

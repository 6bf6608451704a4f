"""Fills a store with copies of one row that a queue has written, instead of with hours of single calls."""

from __future__ import annotations

import psycopg
from psycopg import sql

COLUMNS = """
SELECT column_name FROM information_schema.columns
 WHERE table_schema = 'public' AND table_name = %s AND column_name <> %s AND is_generated = 'NEVER'
"""


def copy_row(url: str, table: str, key: str, new_key: str | None, count: int) -> None:
    """Copy the only row of *table* *count* times.

    *new_key* is the SQL expression for a copy's key, where `n` is its number; None if the table generates
    keys.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # disables triggers
        rest = sql.SQL(", ").join(
            sql.Identifier(name) for (name,) in connection.execute(COLUMNS, (table, key))
        )
        names, values = rest, rest
        if new_key is not None:
            names = sql.SQL("{}, {}").format(sql.Identifier(key), rest)
            values = sql.SQL("{}, {}").format(sql.SQL(new_key), rest)
        connection.execute(
            sql.SQL("INSERT INTO {0} ({1}) SELECT {2} FROM {0}, generate_series(1, {3}) n").format(
                sql.Identifier(table), names, values, count
            )
        )

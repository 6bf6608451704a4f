"""Read which schema a file has, from a table of ours: the file may be the user's, and its `user_version` too."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.stores.migrations import SCHEMA_FAMILY, refuse_family

_INSTEAD = "use a new file"


def applied_migrations(connection: sqlite3.Connection, path: str) -> dict[str, int]:
    """Return the number of the newest migration of each component; nothing if there is no schema yet.

    Raise `SchemaMismatch` for a schema of another family.
    """
    columns = {row[1] for row in connection.execute("PRAGMA table_info(holdfast_migration)")}
    if not columns:
        return {}
    name = Path(path).name
    if "family" not in columns:
        refuse_family(1, name, _INSTEAD)
    rows = connection.execute(
        "SELECT component, max(number), family FROM holdfast_migration GROUP BY component, family"
    ).fetchall()
    for family in {row[2] for row in rows} - {SCHEMA_FAMILY}:
        refuse_family(family, name, _INSTEAD)
    return {component: number for component, number, _ in rows}

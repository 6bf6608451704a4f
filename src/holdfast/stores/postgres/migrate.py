"""Run the migrations of PostgreSQL. `holdfast.migration` records them, and two migrators meet at an advisory lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.engine.extensions import StoreExtensions
from holdfast.stores.migrations import (
    SCHEMA_FAMILY,
    Migration,
    core_migrations,
    missing,
    refuse_family,
    refuse_newer,
    refuse_older,
    with_extensions,
)

#: The migrations of the core.
MIGRATIONS: Sequence[Migration] = core_migrations("postgres")
#: What to use in place of a database whose schema belongs to an older family.
INSTEAD = "use a new database or drop the schema holdfast"
_LOCK = 0x484F4C44  # "HOLD"


async def migrate(
    connection: asyncpg.Connection[Any], where: str, extensions: StoreExtensions | None = None
) -> list[str]:
    """Run the missing migrations of the core and of *extensions*, all in one transaction, and return their names.

    Each migration records its number before it changes anything. A database of another family is refused unchanged.
    """
    async with connection.transaction():
        # Every family takes this lock, so an older Holdfast cannot create its tables meanwhile.
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        # Neither statement changes a schema that exists, of whatever family.
        await connection.execute("CREATE SCHEMA IF NOT EXISTS holdfast")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS holdfast.migration ("
            " component text, number int, name text NOT NULL, family int NOT NULL,"
            " at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (component, number))"
        )
        applied = await _applied(connection, where)
        migrations = with_extensions(MIGRATIONS, extensions or StoreExtensions(), "postgres", applied)
        refuse_newer(migrations, applied, where)
        needed = missing(migrations, applied)
        for one in needed:
            await connection.execute(
                "INSERT INTO holdfast.migration (component, number, name, family) VALUES ($1, $2, $3, $4)",
                one.component,
                one.number,
                one.name,
                SCHEMA_FAMILY,
            )
            await connection.execute(one.text)
    return [one.name for one in needed]


async def check(
    connection: asyncpg.Connection[Any], where: str, extensions: StoreExtensions | None = None
) -> None:
    """Refuse a schema that is missing, older or newer than this version knows, or of another family."""
    applied = await _applied(connection, where)
    migrations = with_extensions(MIGRATIONS, extensions or StoreExtensions(), "postgres", applied)
    refuse_older(migrations, applied, where)
    refuse_newer(migrations, applied, where)


async def _applied(connection: asyncpg.Connection[Any], where: str) -> dict[str, int]:
    """Return the newest number of each component; nothing where there is no schema yet. One statement, for a quick start."""
    try:
        rows = await connection.fetch(
            "SELECT component, number, family FROM holdfast.migration ORDER BY number"
        )
    except asyncpg.UndefinedTableError:
        return {}
    except asyncpg.UndefinedColumnError:
        refuse_family(1, where, INSTEAD)
    for family in {row["family"] for row in rows} - {SCHEMA_FAMILY}:
        refuse_family(family, where, INSTEAD)
    return {row["component"]: row["number"] for row in rows}

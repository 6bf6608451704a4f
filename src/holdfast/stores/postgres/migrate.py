"""Forward-only, numbered migrations, recorded in `holdfast.migration`; two migrators meet at an advisory lock."""

from __future__ import annotations

from typing import Any

import asyncpg

from holdfast.errors import SchemaMismatch
from holdfast.stores.sql_files import load_migrations

MIGRATIONS = load_migrations("holdfast.stores.postgres")
_LOCK = 0x484F4C44  # "HOLD"


async def migrate(connection: asyncpg.Connection[Any]) -> list[str]:
    """Run what is missing, all in one transaction; each records its number first."""
    done: list[str] = []
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute("CREATE SCHEMA IF NOT EXISTS holdfast")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS holdfast.migration"
            " (number int PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
        version, newest = await _version(connection), MIGRATIONS[-1][0]
        if version > newest:
            raise SchemaMismatch(
                f"the database has schema {version}, this version of Holdfast knows up to {newest}; upgrade Holdfast"
            )
        for number, name, text in MIGRATIONS:
            if number > version:
                await connection.execute(
                    "INSERT INTO holdfast.migration (number, name) VALUES ($1, $2)", number, name
                )
                await connection.execute(text)
                done.append(name)
    return done


async def check(connection: asyncpg.Connection[Any], where: str) -> None:
    """Refuse a schema that is missing, older or newer than this version knows."""
    newest = MIGRATIONS[-1][0]
    try:
        version = await _version(connection)
    except asyncpg.UndefinedTableError:
        version = 0
    if version == 0:
        raise SchemaMismatch(f"{where} has no Holdfast schema; run `holdfast migrate`")
    if version < newest:
        raise SchemaMismatch(
            f"{where} has schema {version}, this version of Holdfast needs {newest}; run `holdfast migrate`"
        )
    if version > newest:
        raise SchemaMismatch(
            f"{where} has schema {version}, this version of Holdfast knows up to {newest}; upgrade Holdfast"
        )


async def _version(connection: asyncpg.Connection[Any]) -> int:
    return int(await connection.fetchval("SELECT coalesce(max(number), 0) FROM holdfast.migration") or 0)

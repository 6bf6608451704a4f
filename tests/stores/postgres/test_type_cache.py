"""What every database answers alike is asked once in a process."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.stores.postgres import type_cache
from holdfast.stores.postgres.connections import Connections

NOW = datetime.now(UTC)
VALUES: dict[str, list[Any]] = {
    "boolean": [True, None],
    "bytea": [b"\x00", b""],
    "smallint": [1, -1],
    "integer": [2**31 - 1],
    "text": ["a", '"{}', None],
    "bigint": [2**63 - 1],
    "double precision": [0.5],
    "timestamptz": [NOW],
    "interval": [timedelta(seconds=1.5)],
    "uuid": [uuid.uuid4()],
    "jsonb": ['{"a": 1}', None],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """What asyncpg looked up, from a process that knows nothing."""
    asked: list[set[int]] = []
    look_up: Any = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def noted(connection: Any, typeoids: Iterable[int], timeout: float | None) -> Any:
        asked.append(set(typeoids))
        return await look_up(connection, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", noted)
    monkeypatch.setattr(type_cache, "_told", [])
    return asked


@pytest.mark.parametrize("prepare", ["on", "off"])
async def test_arrays_are_looked_up_once_for_all_connections(
    postgres_url: str, asked: list[set[int]], prepare: str
) -> None:
    lines = Connections(f"{postgres_url}?prepare={prepare}")
    for _ in range(2):
        connection = await lines.connect()
        for kind, values in VALUES.items():
            assert await connection.fetchval(f"SELECT $1::{kind}[]", values) == values
        await connection.close()
    assert len(asked) == 1


async def test_all_that_our_statements_and_tables_are_made_of_is_looked_up_together(
    postgres_url: str,
) -> None:
    connection = await Connections(postgres_url).connect()
    folder = Path(type_cache.__file__).parent
    named = {
        name
        for file in (*folder.glob("sql/*.sql"), *folder.glob("*.py"))
        for name in re.findall(r"::([a-z][a-z0-9 ]*)\[\]", file.read_text())
    }
    cast = await connection.fetch("SELECT unnest($1::text[])::regtype::oid", [f"{name}[]" for name in named])
    columns = await connection.fetch(
        "SELECT DISTINCT atttypid FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid"
        " WHERE attrelid::regclass::text LIKE 'holdfast.%' AND typcategory = 'A'"
    )
    await connection.close()
    assert {number for [number] in (*cast, *columns)} - type_cache._OURS == set()


async def test_what_a_database_has_of_its_own_is_looked_up_there(
    postgres_url: str, asked: list[set[int]]
) -> None:
    connection = await Connections(postgres_url).connect()
    await connection.execute("CREATE TYPE mood AS ENUM ('good', 'bad')")
    assert await connection.fetchval("SELECT $1::mood[]", ["bad"]) == ["bad"]
    assert await connection.fetchval("SELECT $1::numrange[]", []) == []
    assert len(asked) == 2
    await connection.close()

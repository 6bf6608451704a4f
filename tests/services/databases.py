"""Databases with our schema in them: copies of one that was migrated, which is a tenth of the work of migrating each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.wiring import SystemClock, make_store
from tests.services.postgres import Postgres

MOULD, EMPTIED = "holdfast_mould", "holdfast_emptied"
_numbers = count(1)


def new_file(path: Path) -> str:
    """The address of an SQLite file."""
    path.write_bytes(_mould())
    return f"sqlite:///{path}"


@contextmanager
def new_database(server: Postgres) -> Iterator[str]:
    """The address of a database of PostgreSQL, until it is dropped."""
    name = f"test_{next(_numbers)}"
    yield _copy(server, name)
    server.drop_database(name)


@contextmanager
def emptied_database(server: Postgres, *, pooled: bool = False) -> Iterator[str]:
    """The address of the same database each time, emptied afterwards: a tenth of the work of a new one. Whoever changes more
    than rows and tables of their own, or makes many rows, leaves a new one to the next. A pooler keeps its sessions."""
    if EMPTIED not in server.databases:
        _copy(server, EMPTIED)
        server.ask(_function_that_empties(server), EMPTIED)
        _shapes[server] = _shape(server)
    try:
        yield server.url(EMPTIED)
    finally:
        if not pooled:
            server.end_sessions(EMPTIED)
        for (table,) in server.ask(_TABLES.format("public"), EMPTIED).fetchall():
            server.ask(f"DROP TABLE {table} CASCADE", EMPTIED)
        if _shape(server) != _shapes[server] or _empty(server) > MANY:
            server.drop_database(EMPTIED)


MANY = 2000  #: rows, whose remains would slow the next test down
_TABLES = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = '{}'"
_SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename), start_value FROM pg_sequences"
#: How many there are of all that a database is made of, beside what each has (below 16384), and when one was changed last.
_SHAPE = "SELECT " + ", ".join(
    f"(SELECT ROW(count(*), max(xmin::text::bigint)) FROM {catalogue})"
    for catalogue in (
        *(
            f"pg_{kind} WHERE oid >= 16384"
            for kind in ("class", "proc", "trigger", "constraint", "type", "namespace")
        ),
        "pg_attribute WHERE attrelid >= 16384",
        "holdfast.migration",
        "pg_database WHERE datname = current_database()",
        "pg_db_role_setting",
    )
)
_shapes: dict[Postgres, object] = {}  #: of the emptied database when it was new


def _shape(server: Postgres) -> object:
    return server.ask(_SHAPE, EMPTIED).fetchone()


def _empty(server: Postgres) -> int:
    [(rows,)] = server.ask("SELECT empty()", EMPTIED).fetchall()
    return int(rows)


def _function_that_empties(server: Postgres) -> str:
    """One DELETE for each table: their plans are kept. TRUNCATE would make new files for all of them."""
    tables = [name for (name,) in server.ask(_TABLES.format("holdfast"), EMPTIED) if "migration" not in name]
    deletes = [f"DELETE FROM {table}; GET DIAGNOSTICS n = ROW_COUNT; rows := rows + n;" for table in tables]
    sequences = server.ask(_SEQUENCES, EMPTIED)
    resets = [f"PERFORM setval('{name}', {first}, false);" for name, first in sequences]
    return f"""
        CREATE FUNCTION empty(OUT rows int) LANGUAGE plpgsql
        SET session_replication_role = replica SET lock_timeout = '10s' AS $$
        DECLARE
            n int;
        BEGIN
            rows := 0;
            {" ".join(deletes + resets)}
        END $$"""


def _copy(server: Postgres, name: str) -> str:
    if MOULD not in server.databases:
        _migrate(server.create_database(MOULD))
    return server.create_database(name, MOULD)


@cache
def _mould() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "mould.db"
        _migrate(f"sqlite:///{file}")
        return file.read_bytes()


def _migrate(url: str) -> None:
    """In a thread, because the test may be on an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, make_store(url, SystemClock(), None).migrate()).result()

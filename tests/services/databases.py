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
def emptied_database(server: Postgres) -> Iterator[str]:
    """The address of the same database each time, emptied afterwards: a tenth of the work of a new one, for those who change
    nothing but rows and leave no session behind in the middle of something."""
    if EMPTIED not in server.databases:
        _copy(server, EMPTIED)
        server.ask(_EMPTY, EMPTIED)
    yield server.url(EMPTIED)
    server.ask("SELECT empty()", EMPTIED)


#: Makes a function of one DELETE for each table: their plans are kept. TRUNCATE would make new files for all of them.
_EMPTY = """
DO $make$
DECLARE
    body text;
BEGIN
    SELECT string_agg(format('DELETE FROM %I.%I;', schemaname, tablename), ' ') INTO body
    FROM pg_tables WHERE schemaname = 'holdfast' AND tablename <> 'migration';
    SELECT body || string_agg(format('PERFORM setval(%L, %s, false);',
        format('%I.%I', schemaname, sequencename), start_value), ' ') INTO body FROM pg_sequences;
    EXECUTE format('CREATE FUNCTION empty() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica '
        'SET lock_timeout = ''10s'' AS %L', 'BEGIN ' || body || ' END');
END $make$
"""


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

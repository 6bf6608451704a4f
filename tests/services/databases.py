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

MOULD = "holdfast_mould"
_numbers = count(1)


def new_file(path: Path) -> str:
    """The address of an SQLite file."""
    path.write_bytes(_mould())
    return f"sqlite:///{path}"


@contextmanager
def new_database(server: Postgres) -> Iterator[str]:
    """The address of a database of PostgreSQL, until it is dropped."""
    if MOULD not in server.databases:
        _migrate(server.create_database(MOULD))
    name = f"test_{next(_numbers)}"
    yield server.create_database(name, MOULD)
    server.drop_database(name)


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

"""Databases with the schema of Holdfast: copies of a migrated one, because a copy takes a tenth of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from devservices.postgres import Postgres
from holdfast.wiring import SystemClock, make_store

TEMPLATE = "holdfast_template"
_numbers = count(1)


def new_file(path: Path) -> str:
    """Create a SQLite file, and return its URL."""
    path.write_bytes(_template())
    return f"sqlite:///{path}"


@contextmanager
def new_database(server: Postgres) -> Iterator[str]:
    """Yield the URL of a new database of PostgreSQL, which is dropped at the end."""
    if TEMPLATE not in server.databases:
        _migrate(server.create_database(TEMPLATE))
    name = f"test_{next(_numbers)}"
    yield server.create_database(name, TEMPLATE)
    server.drop_database(name)


@cache
def _template() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "template.db"
        _migrate(f"sqlite:///{file}")
        return file.read_bytes()


def _migrate(url: str) -> None:
    """Migrate in a thread, because the test may run on an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, make_store(url, SystemClock(), None).migrate()).result()

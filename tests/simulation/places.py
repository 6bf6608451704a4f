"""Where the jobs of a simulation are: in memory, or in a real SQLite file that every process opens for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from holdfast.engine.ports import Store
from holdfast.jobs.machine import Clock
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.databases import new_file


class Place(Protocol):
    name: str
    own_clock: bool  #: the store's clock is not that of the processes

    def open(self, clock: Clock) -> Store:
        """The store, for one more process."""

    def close(self) -> None: ...


class InMemory:
    name = "memory"
    own_clock = True

    def __init__(self) -> None:
        self._store: MemoryStore | None = None

    def open(self, clock: Clock) -> Store:
        if self._store is None:
            self._store = MemoryStore(clock)
        return self._store

    def close(self) -> None: ...


class Files:
    """Makes a new database for each seed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count(1)

    def new(self) -> InFile:
        return InFile(self._folder / f"{next(self._numbers)}.db")


@contextmanager
def quick_folder() -> Iterator[Path]:
    """In memory where the system has such a place: nobody here cuts the power, and thousands of fsyncs take their time."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


class InFile:
    """Its writer runs inline, so that each write is one step of the simulation."""

    name = "sqlite"
    own_clock = False

    def __init__(self, path: Path) -> None:
        self._path, self._opened = path, list[SqliteStore]()
        new_file(path)

    def open(self, clock: Clock) -> Store:
        store = SqliteStore(str(self._path), clock, None)
        store._database.open()
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.abandon()
        self._path.unlink()

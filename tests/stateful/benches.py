"""One bench for each store. A fresh store for every example, made as cheaply as each allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path

from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from tests.databases import new_file
from tests.stateful.machine import Bench

_numbers = count(1)


def memory_benches(loop: asyncio.AbstractEventLoop) -> Callable[[], Bench]:
    def make() -> Bench:
        clock = ManualClock()
        return Bench(MemoryStore(clock), clock, loop, lambda by: _move(clock, by), lambda: None)

    return make


def _move(clock: ManualClock, by: float) -> None:
    clock.advance(by)


def sqlite_benches(loop: asyncio.AbstractEventLoop, folder: Path) -> Callable[[], Bench]:
    """Without threads every write is made inline."""

    def make() -> Bench:
        path = folder / f"{next(_numbers)}.db"
        new_file(path)
        clock = ManualClock()
        store = SqliteStore(str(path), clock, None)
        store._database.open()

        def close() -> None:
            loop.run_until_complete(store.close())
            path.unlink()

        return Bench(store, clock, loop, lambda by: _move(clock, by), close)

    return make


def postgres_benches(
    loop: asyncio.AbstractEventLoop, url: str
) -> tuple[Callable[[], Bench], Callable[[], None]]:
    """One store for all examples, emptied between them. Its clock stands still, so a slow machine changes no story."""
    from holdfast.stores.postgres import PostgresStore
    from holdfast.wiring import SystemClock

    clock = SystemClock()
    store = PostgresStore(url, clock, None)

    async def empty() -> None:
        async with store.transaction() as db:
            tables = await db.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast' AND tablename NOT IN ('migration', 'lane')"
            )
            await db.execute("TRUNCATE " + ", ".join(f"holdfast.{name}" for (name,) in tables))

    async def execute(statement: str, *parameters: object) -> None:
        async with store.transaction() as db:
            await db.execute(statement, *parameters)

    def advance(by: float) -> None:
        loop.run_until_complete(execute("UPDATE public.manual_clock SET at = at + $1", timedelta(seconds=by)))

    def make() -> Bench:
        loop.run_until_complete(empty())
        return Bench(store, clock, loop, advance, lambda: None, patience=10.0)

    async def open_store() -> None:
        await store.open()
        await execute("CREATE TABLE public.manual_clock AS SELECT clock_timestamp() AS at")
        await execute(
            "CREATE OR REPLACE FUNCTION holdfast.clock() RETURNS timestamptz LANGUAGE sql VOLATILE"
            " AS 'SELECT at FROM public.manual_clock'"
        )

    loop.run_until_complete(open_store())
    return make, lambda: loop.run_until_complete(store.close())

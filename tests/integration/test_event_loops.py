"""One app in several event loops, one after the other or side by side: each has its engine, and none is left behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from tests.apps import Database, new_app


def ship_task(app: Holdfast) -> object:
    @app.task
    async def ship(order: int) -> int:
        return order

    return ship


def connections(db: Database) -> int:
    """How many the app holds."""
    sql = """SELECT count(*) FROM pg_stat_activity
              WHERE application_name = 'holdfast' AND datname = current_database()"""
    [(count,)] = db.execute(sql)
    return int(count)


def wait_for_connections(db: Database, most: int) -> None:
    """Until it holds no more than that: the server sees a moment later that one was closed."""
    until = time.monotonic() + 20
    while (held := connections(db)) > most:
        assert time.monotonic() < until, f"{held} connections are open"
        time.sleep(0.01)


def test_the_engine_of_a_loop_that_is_gone_is_closed(db: Database, app: Holdfast) -> None:  # E49
    ship: object = ship_task(app)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for order in range(4):
            asyncio.run(ship.enqueue(order))  # type: ignore[attr-defined]
            if db.is_postgres:
                wait_for_connections(db, 4)
        asyncio.run(app.close())
        gc.collect()
    assert db.count("job") == 4
    if db.is_postgres:
        wait_for_connections(db, 0)


def test_loops_side_by_side_have_an_engine_each(db: Database, app: Holdfast) -> None:  # E49
    ship: object = ship_task(app)
    there, here = threading.Event(), threading.Event()
    engines: list[object] = []

    async def other() -> None:
        engines.append(await app.runtime.engine())
        there.set()
        await asyncio.to_thread(here.wait, 20)
        await ship.enqueue(2)  # type: ignore[attr-defined]
        assert await app.runtime.engine() is engines[0]  # nobody has taken it away
        await app.close()

    thread = threading.Thread(target=lambda: asyncio.run(other()))
    thread.start()
    assert there.wait(20)

    async def mine() -> None:
        async with app:
            engines.append(await app.runtime.engine())
            await ship.enqueue(1)  # type: ignore[attr-defined]
            here.set()
            await asyncio.to_thread(thread.join, 20)

    asyncio.run(mine())
    assert engines[0] is not engines[1]
    assert db.count("job") == 2


SCRIPT = """
import asyncio, sys
from holdfast import Holdfast
app = Holdfast(sys.argv[1])

@app.task
async def ship(order: int) -> int:
    return order

for order in range(2):
    asyncio.run(ship.enqueue(order))
if not sys.argv[1].startswith("postgres"):
    ship.enqueue_sync(2)
"""


def test_a_script_that_closes_nothing_ends_without_a_word(db: Database) -> None:  # E49
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", SCRIPT, db.url],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert db.count("job") == (2 if db.is_postgres else 3)


def test_threads_go_on_enqueueing_while_loops_come_and_go(db: Database, app: Holdfast) -> None:  # E49
    ship: object = ship_task(app)
    stop, problems, stored = threading.Event(), list[BaseException](), list[int]()

    def enqueue() -> None:
        try:
            while not stop.is_set():
                ship.enqueue_sync(1)  # type: ignore[attr-defined]
                stored.append(1)
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=enqueue)
    asyncio.run(ship.enqueue(0))  # type: ignore[attr-defined]
    thread.start()
    for order in range(5):
        asyncio.run(ship.enqueue(order))  # type: ignore[attr-defined]
    stop.set()
    thread.join(20)
    assert problems == []
    assert db.count("job") == 6 + len(stored)
    asyncio.run(app.close())


def test_an_app_is_opened_again_after_it_was_closed(db: Database) -> None:  # E49
    app = new_app(db.url)
    ship: object = ship_task(app)

    async def once(order: int) -> None:
        async with app:
            await ship.enqueue(order)  # type: ignore[attr-defined]
        async with app:
            assert sum((await app.jobs.counts()).values()) == order

    for order in (1, 2):
        asyncio.run(once(order))


def test_threads_that_enqueue_first_at_the_same_time_share_one_store(tmp_path: Path) -> None:
    before, interval = writers(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(5):
            app = Holdfast(f"sqlite:///{tmp_path}/{number}.db")

            @app.task
            async def send(to: str) -> str:
                return to

            begin = threading.Barrier(8)

            def enqueue(task: Any = send, begin: threading.Barrier = begin) -> None:
                begin.wait()
                task.enqueue_sync("ann")

            threads = [threading.Thread(target=enqueue) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(writers() - before) == 1
            app.runtime.close_sync()
            assert writers() == before  # none is left with its connections
    finally:
        sys.setswitchinterval(interval)


def writers() -> set[threading.Thread]:
    """The threads that write to files of SQLite."""
    return {thread for thread in threading.enumerate() if thread.name == "holdfast-sqlite-writer"}

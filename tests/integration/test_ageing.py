"""What a job costs the database among 100,000 jobs that are finished, in steps and pages, not in seconds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from benchmarks.ageing import drain, grow
from benchmarks.lists import age
from tests.apps import Database

FINISHED = 100_000
JOBS = 500


def counted_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the steps of SQLite's virtual machine on every connection from now on, in thousands."""
    steps: list[None] = []
    connect = sqlite3.connect

    def counting(*given: Any, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **named)
        connection.set_progress_handler(lambda: steps.append(None), 1000)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counting)
    return lambda: len(steps)


def pages_of(url: str) -> int:
    """How many pages were looked at in this database so far, by connections that are closed. Autovacuum is off here."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()"
        )
        row = found.fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.slow
async def test_a_job_costs_the_same_work_among_a_hundred_thousand_finished_ones(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:  # E54
    work = partial(pages_of, db.url) if db.is_postgres else counted_steps(monkeypatch)

    async def cost() -> int:
        await drain(db.url, JOBS)  # caches and plans are warm
        before = work()
        await drain(db.url, JOBS)
        return work() - before

    new = await cost()
    await grow(db.url, FINISHED)
    age(db.url, FINISHED)
    old = await cost()
    assert new > 0
    assert old < 2 * new, f"{old:,} against {new:,} in an empty database"

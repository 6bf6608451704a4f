"""Throughput in an old database stays near that in a new one (E54): each as a ratio of rounds that alternate.

`NIGHTLY_JOBS` sets how many jobs are there already, `NIGHTLY_MINUTES` how long the work before lasts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from statistics import median

import psycopg
import pytest

from benchmarks.ageing import compare, drain, grow
from benchmarks.lists import database

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

JOBS = int(os.environ.get("NIGHTLY_JOBS", "1000000"))
#: 500 jobs a second for two minutes: an hour's worth of 17 a second, with retries and retention.
MINUTES = float(os.environ.get("NIGHTLY_MINUTES", "2"))
#: How much slower an old database may be: wide, since the machine does other things meanwhile.
NEAR = 0.6
ROUND, ROUNDS = 10_000, 3

Note = Callable[[str, object], None]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_worker_is_as_fast_after_an_hours_worth_of_jobs(kind: str, record_property: Note) -> None:  # E54
    new, old, _ = compare(kind, 0, ROUND, ROUNDS, minutes=MINUTES)
    record_property(f"{kind}: speed after an hour's worth of jobs", round(old.per_second / new.per_second, 2))
    assert old.per_second >= NEAR * new.per_second


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_worker_is_as_fast_among_a_million_jobs(kind: str, record_property: Note) -> None:  # E54
    new, old, _ = compare(kind, JOBS, ROUND, ROUNDS)
    record_property(f"{kind}: speed among {JOBS:,} jobs", round(old.per_second / new.per_second, 2))
    assert old.per_second >= NEAR * new.per_second


def test_a_worker_is_as_fast_beside_a_transaction_that_stays_open(record_property: Note) -> None:  # E54
    """Vacuum removes nothing while the transaction is open, so every claim passes by what is done."""
    with database("postgres") as (calm, _), database("postgres") as (held, _):
        for url in (calm, held):
            asyncio.run(grow(url, 0))
        with psycopg.connect(held) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM holdfast.job")  # its snapshot is taken here
            speeds: dict[str, list[float]] = {calm: [], held: []}
            for _ in range(2 * ROUNDS):
                for url, found in speeds.items():
                    found.append(asyncio.run(drain(url, ROUND)).per_second)
            connection.rollback()
    # The last rounds: by then the transaction has outlived many jobs.
    ratio = median(speeds[held][-ROUNDS:]) / median(speeds[calm][-ROUNDS:])
    record_property("postgres: speed beside an open transaction", round(ratio, 2))
    assert ratio >= NEAR

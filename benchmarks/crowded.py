"""`python -m benchmarks.crowded`: claim 50 of a million jobs of many owners, and beside a held lane.

One owner has 40 % of the jobs. Printed are the medians of the client's round trip and of the server's CPU
time for a claim; how many jobs start before a new owner's single one; and the claims from a lane beside
another one that is held with hundreds of thousands of jobs. Runs on a private PostgreSQL; the passes of the
jobs are written as the stager would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import psycopg

from benchmarks.proc import backends, on_cpu
from devservices.postgres import Postgres
from holdfast import Holdfast
from holdfast.jobs.job import Lane, Session
from holdfast.jobs.lanes import Cause, Scope, ScopeKind
from holdfast.resilience.fairness import STRIDE
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemThreads
from tests.stores.postgres.lanes import enqueue, fill, session

FAIR, FREE, HELD = Lane("mail", "send", fair=True), Lane("mail", "log"), Lane("mail", "convert", "gateway")
CLAIMED = 50


class Claims(NamedTuple):
    """The figures of several claims."""

    trips: list[float]  #: milliseconds of each round trip
    cpu: float  #: milliseconds of the server for each claim

    def summary(self) -> dict[str, float]:
        """Return the median round trip and the CPU time, rounded."""
        return {"round trip, ms": round(median(self.trips), 2), "server CPU, ms": round(self.cpu, 2)}


class Bench:
    """Claims from one store."""

    def __init__(self, server: Postgres, database: str, store: PostgresStore, holder: Session) -> None:
        self._server, self._database, self._store, self._holder = server, database, store, holder

    async def claim(self, lanes: Sequence[Lane], times: int) -> Claims:
        """Claim 50 jobs from *lanes*, *times* times."""
        await self._store.claim(self._holder, lanes, CLAIMED)  # prepares the plan and the cursors
        pids = backends(self._server.pid, self._database)
        trips, cpu = [], on_cpu(pids)
        for _ in range(times):
            began = time.perf_counter()
            claimed = await self._store.claim(self._holder, lanes, CLAIMED)
            trips.append((time.perf_counter() - began) * 1000)
            assert len(claimed) == CLAIMED
        return Claims(trips, (on_cpu(pids) - cpu) * 1000 / times)

    async def jobs_before_newcomer(self, lane: Lane, most: int) -> int:
        """Return how many jobs are claimed before the job that a new owner enqueues now."""
        [newcomer] = await enqueue(self._store, lane, ["newcomer"])
        before = 0
        while before < most:
            ids = [one.lease.job_id for one in await self._store.claim(self._holder, [lane], CLAIMED)]
            if newcomer in ids:
                return before + ids.index(newcomer)
            before += len(ids)
        return before


def write_passes(url: str) -> None:
    """Write the passes as the stager gives them in a new lane: an owner's n-th job gets n strides."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            b"""WITH passes AS (SELECT r.ctid AS t, j.owner, row_number() OVER (PARTITION BY j.owner ORDER BY r.ord, r.id) AS n
                                  FROM holdfast.ready r JOIN holdfast.job j ON j.id = r.id)
                UPDATE holdfast.ready r SET ord = p.n * %s FROM passes p WHERE r.ctid = p.t""",
            (STRIDE,),
        )
        connection.execute("VACUUM ANALYZE holdfast.ready")


async def measure(server: Postgres, jobs: int, owners: int, held: int, times: int) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for name in ("crowd", "holds"):
        url = server.create_database(name)
        await Holdfast(url).migrate()
        store = PostgresStore(url, SystemClock(), SystemThreads())
        await store.open()
        try:
            await store.register([FAIR, FREE, HELD])
            bench = Bench(server, name, store, await session(store))
            if name == "crowd":
                summary |= await crowd(bench, url, jobs, owners, times)
            else:
                summary |= await holds(bench, store, url, held, times)
        finally:
            await store.close()
    return summary


async def crowd(bench: Bench, url: str, jobs: int, owners: int, times: int) -> dict[str, Any]:
    fill(url, FAIR, jobs, f"CASE WHEN mod(i, 10) < 4 THEN 'hog' ELSE 'owner ' || mod(i, {owners}) END")
    write_passes(url)
    claims = await bench.claim([FAIR], times)
    before = await bench.jobs_before_newcomer(FAIR, 4 * owners)
    return {
        f"claim of {CLAIMED} among {jobs:,} of {owners:,} owners": claims.summary(),
        f"jobs before a newcomer's (wanted: fewer than {2 * owners:,})": before,
    }


async def holds(bench: Bench, store: PostgresStore, url: str, held: int, times: int) -> dict[str, Any]:
    """Measure claims from the free lane, without and with another lane.

    There are three cases: the free lane is alone in the database, the other lane's jobs are there but not in
    the claim, and the other lane is in the claim and held. The first two differ in the size of the tables.
    The last two differ in the hold, and are measured in turn.
    """
    turns = 4
    fill(url, FREE, (times + 1 + 2 * turns * (times // turns + 1)) * CLAIMED)
    alone = await bench.claim([FREE, HELD], times)
    fill(url, HELD, held)
    await store.hold(Scope(ScopeKind.TASK, HELD.task), Cause.PAUSE, span=None, reason="deploy", by="ann")
    without_lane, with_lane = [], []
    for _ in range(turns):
        without_lane.append(await bench.claim([FREE], times // turns))
        with_lane.append(await bench.claim([FREE, HELD], times // turns))
    without, with_held = merged(without_lane), merged(with_lane)
    return {
        "claim, alone in the database": alone.summary(),
        f"claim beside {held:,} jobs, not asked for": without.summary(),
        f"claim beside {held:,} jobs, asked for and held": with_held.summary(),
        "held / not asked for, server CPU (wanted: 1.5 at most)": round(with_held.cpu / without.cpu, 2),
        "held / not asked for, round trip": round(median(with_held.trips) / median(without.trips), 2),
        "held / alone, server CPU": round(with_held.cpu / alone.cpu, 2),
    }


def merged(several: Sequence[Claims]) -> Claims:
    return Claims([trip for one in several for trip in one.trips], median(one.cpu for one in several))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowded", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--owners", type=int, default=10_000)
    parser.add_argument("--held", type=int, default=300_000)
    parser.add_argument("--times", type=int, default=100)
    options = parser.parse_args()
    with Postgres() as server:
        summary = asyncio.run(measure(server, options.jobs, options.owners, options.held, options.times))
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()

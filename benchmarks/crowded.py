"""`python -m benchmarks.crowded`: a claim of 50 among a million ready jobs of ten thousand owners, and beside a held lane.

One owner has 40 % of the jobs. Told are medians of the client's round trip and of the CPU time of the server's process for the
claim; how many jobs start before a newcomer's single one; and the claims of a lane beside another one that is held with hundreds
of thousands of jobs. One private PostgreSQL; the passes of the crowd are written as the stager would give them.
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
from holdfast import Holdfast
from holdfast.domain.fairness import STRIDE
from holdfast.domain.job import Lane, Session
from holdfast.domain.lanes import Cause, Scope, ScopeKind
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemThreads
from tests.integration.postgres_lanes import enqueue, fill, session
from tests.services.postgres import Postgres

FAIR, FREE, HELD = Lane("mail", "send", fair=True), Lane("mail", "log"), Lane("mail", "convert", "gateway")
CLAIMED = 50


class Claims(NamedTuple):
    trips: list[float]  #: milliseconds, there and back
    cpu: float  #: milliseconds of the server for each

    def told(self) -> dict[str, float]:
        return {"round trip, ms": round(median(self.trips), 2), "server CPU, ms": round(self.cpu, 2)}


class Bench:
    def __init__(self, server: Postgres, database: str, store: PostgresStore, holder: Session) -> None:
        self._server, self._database, self._store, self._holder = server, database, store, holder

    async def claim(self, lanes: Sequence[Lane], times: int) -> Claims:
        await self._store.claim(
            self._holder, lanes, CLAIMED
        )  # its plan and its cursors are there after the first
        pids = backends(self._server.pid, self._database)
        trips, cpu = [], on_cpu(pids)
        for _ in range(times):
            began = time.perf_counter()
            claimed = await self._store.claim(self._holder, lanes, CLAIMED)
            trips.append((time.perf_counter() - began) * 1000)
            assert len(claimed) == CLAIMED
        return Claims(trips, (on_cpu(pids) - cpu) * 1000 / times)

    async def starts_before(self, lane: Lane, most: int) -> int:
        """How many jobs are claimed before that of an owner who comes now."""
        [newcomer] = await enqueue(self._store, lane, ["newcomer"])
        before = 0
        while before < most:
            ids = [one.lease.job_id for one in await self._store.claim(self._holder, [lane], CLAIMED)]
            if newcomer in ids:
                return before + ids.index(newcomer)
            before += len(ids)
        return before


def place(url: str) -> None:
    """Everybody stands where the stager puts them when the line is new: an owner's n-th job at n strides."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            b"""WITH passes AS (SELECT r.ctid AS t, j.owner, row_number() OVER (PARTITION BY j.owner ORDER BY r.ord, r.id) AS n
                                  FROM holdfast.ready r JOIN holdfast.job j ON j.id = r.id)
                UPDATE holdfast.ready r SET ord = p.n * %s FROM passes p WHERE r.ctid = p.t""",
            (STRIDE,),
        )
        connection.execute("VACUUM ANALYZE holdfast.ready")


async def measure(server: Postgres, jobs: int, owners: int, held: int, times: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in ("crowd", "holds"):
        url = server.create_database(name)
        await Holdfast(url).migrate()
        store = PostgresStore(url, SystemClock(), SystemThreads())
        await store.open()
        try:
            await store.register([FAIR, FREE, HELD])
            bench = Bench(server, name, store, await session(store))
            if name == "crowd":
                told |= await crowd(bench, url, jobs, owners, times)
            else:
                told |= await holds(bench, store, url, held, times)
        finally:
            await store.close()
    return told


async def crowd(bench: Bench, url: str, jobs: int, owners: int, times: int) -> dict[str, Any]:
    fill(url, FAIR, jobs, f"CASE WHEN mod(i, 10) < 4 THEN 'hog' ELSE 'owner ' || mod(i, {owners}) END")
    place(url)
    found = await bench.claim([FAIR], times)
    before = await bench.starts_before(FAIR, 4 * owners)
    return {
        f"claim of {CLAIMED} among {jobs:,} of {owners:,} owners": found.told(),
        f"jobs before a newcomer's (wanted: fewer than {2 * owners:,})": before,
    }


async def holds(bench: Bench, store: PostgresStore, url: str, held: int, times: int) -> dict[str, Any]:
    """Claims of the free lane: alone in the database, beside the other lane without asking for it, and asking for it, held.

    The first two differ by the size of the tables, the last two by the hold; those are measured in turn.
    """
    turns = 4
    fill(url, FREE, (times + 1 + 2 * turns * (times // turns + 1)) * CLAIMED)
    alone = await bench.claim([FREE, HELD], times)
    fill(url, HELD, held)
    await store.hold(Scope(ScopeKind.TASK, HELD.task), Cause.PAUSE, span=None, reason="deploy", by="ann")
    passed, asked = [], []
    for _ in range(turns):
        passed.append(await bench.claim([FREE], times // turns))
        asked.append(await bench.claim([FREE, HELD], times // turns))
    without, beside = joined(passed), joined(asked)
    return {
        "claim, alone in the database": alone.told(),
        f"claim beside {held:,} jobs, not asked for": without.told(),
        f"claim beside {held:,} jobs, asked for and held": beside.told(),
        "held / not asked for, server CPU (wanted: 1.5 at most)": round(beside.cpu / without.cpu, 2),
        "held / not asked for, round trip": round(median(beside.trips) / median(without.trips), 2),
        "held / alone, server CPU": round(beside.cpu / alone.cpu, 2),
    }


def joined(several: Sequence[Claims]) -> Claims:
    return Claims([trip for one in several for trip in one.trips], median(one.cpu for one in several))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowded", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--owners", type=int, default=10_000)
    parser.add_argument("--held", type=int, default=300_000)
    parser.add_argument("--times", type=int, default=100)
    asked = parser.parse_args()
    with Postgres() as server:
        told = asyncio.run(measure(server, asked.jobs, asked.owners, asked.held, asked.times))
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()

"""`python -m benchmarks.reports`: the chaos run of the reports, and what a step costs.

Documents become reports while workers are killed every few seconds and the bucket and the database go away in turn. Told at the
end: whether every report ended once, how many calls of the model were made and how many could be explained, and how long a
step takes by itself. Needs a PostgreSQL of the tests; nothing outside of this machine is called.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from holdfast import THIS_JOB, Holdfast, Job
from systems.reports.records import open_records
from systems.reports.samples import invoice
from systems.reports.settings import Settings
from systems.reports.tasks import build
from tests.services import keeper
from tests.services.postgres import Postgres
from tests.services.proxy import Proxy
from tests.services.s3 import S3
from tests.systems.provider.providers import ROOT, RunningProvider

PATIENCE_SEC = 900.0
LEASE_SEC = 5


def main() -> int:
    given = parse(sys.argv[1:])
    with Postgres() as server:
        ended = measure(given, server)
    keeper.close()
    return 0 if ended else 1


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reports", description=__doc__)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill-every", type=float, default=5.0, help="seconds; 0 for never")
    parser.add_argument(
        "--away", type=float, default=20.0, help="seconds without bucket, then without database"
    )
    parser.add_argument(
        "--over", type=float, default=0.0, help="seconds in which the second half of them comes"
    )
    parser.add_argument("--steps", type=int, default=300, help="steps to measure; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


def measure(given: argparse.Namespace, server: Postgres) -> bool:
    """Whether all was as it should be."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider = stack.enter_context(RunningProvider())
        bucket = stack.enter_context(S3())
        bucket.create_bucket("papers")
        s3_way = stack.enter_context(Proxy("127.0.0.1", int(bucket.url.rpartition(":")[2]), postgres=False))
        database_way = stack.enter_context(Proxy(server.host, server.port))
        url = server.create_database("reports")
        way_to_bucket = bucket.environment | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_way.port}"}
        chaos = Chaos(given, folder, url, database_way, s3_way, way_to_bucket, provider)
        ended = asyncio.run(chaos.run())
        if given.steps:
            median = asyncio.run(step_cost(server.create_database("steps"), given.steps))
            print(f"a step takes          {median * 1000:.2f} ms p50 (3 ms at most)")
            ended = ended and median <= 0.003
    return ended


class Chaos:
    def __init__(
        self,
        given: argparse.Namespace,
        folder: Path,
        url: str,
        database_way: Proxy,
        s3_way: Proxy,
        way_to_bucket: dict[str, str],
        provider: RunningProvider,
    ) -> None:
        self._given, self._folder, self._url = given, folder, url
        self._database_way, self._s3_way, self._way_to_bucket = database_way, s3_way, way_to_bucket
        self._provider = provider
        self._chance = random.Random(given.seed)
        self.kills = self.outages = 0

    async def run(self) -> bool:
        documents = self._folder / "documents"
        documents.mkdir()
        for number in range(self._given.documents):
            (documents / f"{number}.txt").write_text(invoice(number))
        reports = build(self._settings(self._url))
        await reports.app.migrate()
        began = time.monotonic()
        async with reports.app as app, open_records(self._url) as records:
            calls = [{"source": f"{n}.txt", "schema": "invoice"} for n in range(self._given.documents)]
            first = 1 + len(calls) // 2 if self._given.over else len(calls)
            ids = [handle.id for handle in await reports.report.enqueue_many(calls[:first])]
            with self._workers() as workers:
                trouble = asyncio.create_task(self._trouble(workers))
                for call in calls[first:]:
                    await asyncio.sleep(self._given.over / len(calls[first:]))
                    ids.append((await reports.report.enqueue(**call)).id)
                await self._until_ended(app, began)
                trouble.cancel()
                await asyncio.gather(trouble, return_exceptions=True)
            return await self._told(app, records, ids, time.monotonic() - began)

    def _settings(self, url: str) -> Settings:
        return Settings(
            database_url=url,
            documents_url=(str(self._folder / "documents"),),
            reports_url="s3://papers/out",
            schemas_dir=self._folder,
            model_url=f"{self._provider.url}/v1",
        )

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self._way_to_bucket,
            "DATABASE_URL": self._database_way.route(self._url),
            "DOCUMENTS_URL": str(self._folder / "documents"),
            "REPORTS_URL": "s3://papers/out",
            "MODEL_URL": f"{self._provider.url}/v1",
            "RETRY_FIRST_MS": "500",
            "RETRY_MAX_ATTEMPTS": "20",
            "WORKER_MAX_CRASHES": "20",
            "WORKER_LEASE_TTL_SEC": str(LEASE_SEC),
            "CIRCUIT_COOLDOWN_MS": "2000",
            "HOLDFAST_LOG_LEVEL": "error",
        }
        command = [sys.executable, "-m", "holdfast", "worker", "systems.reports.app:app"]
        return subprocess.Popen(command, cwd=ROOT, env=environment)

    @contextmanager
    def _workers(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        workers = [self._start() for _ in range(self._given.workers)]
        try:
            yield workers
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()

    async def _trouble(self, workers: list[subprocess.Popen[bytes]]) -> None:
        """Kills all the time; the bucket goes away after one while, the database after two."""
        away = asyncio.create_task(self._send_away())
        try:
            while True:
                await asyncio.sleep(self._given.kill_every or 3600)
                place = self._chance.randrange(len(workers))
                workers[place].kill()
                workers[place].wait()
                self.kills += 1
                workers[place] = self._start()
        finally:
            away.cancel()

    async def _send_away(self) -> None:
        for way in (self._s3_way, self._database_way):
            await asyncio.sleep(max(self._given.away / 2, 1))
            way.refuse = True
            await asyncio.to_thread(way.reset)
            await asyncio.sleep(self._given.away)
            way.heal()
            self.outages += 1

    async def _until_ended(self, app: Holdfast, began: float) -> None:
        while time.monotonic() - began < PATIENCE_SEC:
            counts = await app.counts()
            if not (counts.get("queued") or counts.get("processing")):
                return
            await asyncio.sleep(0.5)

    async def _told(self, app: Holdfast, records: Any, ids: Sequence[str], seconds: float) -> bool:
        counts = await app.counts()
        calls = self._provider.calls()
        answered = Counter(call["client_request_id"] for call in calls if call["status"] == 200)
        again = sum(number - 1 for number in answered.values())
        rows = await records.database.run("SELECT count(*), count(DISTINCT job_id) FROM reports_call")
        recorded = dict(await records.database.run("SELECT request_id, at FROM reports_call"))
        offset = time.time() - time.monotonic()  # the provider is on this machine, and tells monotonic times
        wasted = [
            call
            for call in calls
            if call["at"] + offset > recorded.get(call["client_request_id"], float("inf"))
        ]
        ends = Counter(
            event.job_id
            for event in await self._events(app)
            if event.kind in ("complete", "failed") and event.job_id in set(ids)
        )
        # A worker has ten calls at a time. It loses them by a kill, and with its lease, which a long outage ends.
        outlasted = self._given.workers if self._given.away >= LEASE_SEC else 0
        in_flight = (self.kills + outlasted) * 10
        print(f"{len(ids):,} documents       {seconds:.0f} s, {self.kills} workers killed, states {counts}")
        print(f"ended once            {sum(1 for job in ids if ends[job] == 1):,}")
        print(
            f"calls of the model    {len(calls):,}; asked again after an answer {again} (at most {in_flight} in flight)"
        )
        print(f"after a recorded step {len(wasted)} calls (none may be)")
        print(f"rows of tokens        {rows[0][0]:,} for {rows[0][1]:,} reports")
        return bool(
            (self.kills or not self._given.kill_every)  # or nothing was shown
            and self.outages == 2
            and counts.get("complete", 0) == len(ids)
            and all(ends[job] == 1 for job in ids)
            and rows[0] == (len(ids), len(ids))
            and again <= in_flight
            and not wasted
        )

    async def _events(self, app: Holdfast) -> list[Any]:
        found: list[Any] = []
        after = 0
        while page := await app.events(after=after, limit=1000):
            found += page
            after = page[-1].id
        return found


async def step_cost(url: str, number: int) -> float:
    """The median of a step that does nothing, in seconds."""
    app, spent = Holdfast(url), []

    @app.task
    async def many(*, job: Job = THIS_JOB) -> None:
        for nth in range(number):
            began = time.perf_counter()
            await job.step(f"s{nth}", lambda: {"text": "x" * 1000})
            spent.append(time.perf_counter() - began)

    await app.migrate()
    async with app:
        await many.enqueue()
        await app.run_worker(until_idle=True)
    return statistics.median(spent)


if __name__ == "__main__":
    sys.exit(main())

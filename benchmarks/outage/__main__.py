"""`python -m benchmarks.outage`: 5,000 jobs, a service that is down for a minute, two workers, a private PostgreSQL."""

from __future__ import annotations

import argparse
import asyncio
import json

from benchmarks.outage.run import run
from holdfast import Holdfast
from tests.services.postgres import Postgres


async def measure(asked: argparse.Namespace, url: str) -> None:
    await Holdfast(url).migrate()
    found = await run(
        url,
        jobs=asked.jobs,
        down_seconds=asked.down,
        cooldown=asked.cooldown,
        slow_latency=asked.latency,
        concurrency=asked.concurrency,
    )
    print(json.dumps(found.as_dict(), indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outage", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--down", type=float, default=60.0, help="seconds of the outage (60)")
    parser.add_argument("--cooldown", default="30s", help="of the breaker (30s)")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of an answer afterwards (0.2)")
    parser.add_argument("--concurrency", type=int, default=50, help="of each worker (50)")
    asked = parser.parse_args()
    with Postgres(durable=True) as server:
        asyncio.run(measure(asked, server.create_database("outage")))


if __name__ == "__main__":
    main()

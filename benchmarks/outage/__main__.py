"""`python -m benchmarks.outage`: run 5,000 jobs by two workers while their service is down for a minute."""

from __future__ import annotations

import argparse
import asyncio
import json

from benchmarks.outage.run import run
from devservices.postgres import Postgres
from holdfast import Holdfast


async def measure(options: argparse.Namespace, url: str) -> None:
    await Holdfast(url).migrate()
    figures = await run(
        url,
        jobs=options.jobs,
        down_seconds=options.down,
        cooldown=options.cooldown,
        slow_latency=options.latency,
        concurrency=options.concurrency,
    )
    print(json.dumps(figures.as_dict(), indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outage", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--down", type=float, default=60.0, help="seconds of the outage (60)")
    parser.add_argument("--cooldown", default="30s", help="of the breaker (30s)")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of each answer afterwards (0.2)")
    parser.add_argument("--concurrency", type=int, default=50, help="of each worker (50)")
    options = parser.parse_args()
    with Postgres(durable=True) as server:
        asyncio.run(measure(options, server.create_database("outage")))


if __name__ == "__main__":
    main()

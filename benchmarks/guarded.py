"""`python -m benchmarks.guarded`: what breaker, limiter and budget cost a drain, and what an owner costs.

Drains of the same jobs in turn, on a private PostgreSQL: plain, with `depends_on=`, with an owner. Told is the median of the
ratios of neighbours, and how many statements a worker sends for its dependencies in a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from statistics import median
from typing import Any

from holdfast import Holdfast
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.limiter import LimiterPolicy
from tests.services.postgres import Postgres


def make_app(url: str) -> Holdfast:
    app = Holdfast(url, concurrency=200)
    app.dependency("gateway", limiter=LimiterPolicy(start=200, most=1000))
    assert isinstance(app.admission.dependency("gateway"), DependencyPolicy)

    @app.task
    async def plain(number: int) -> None: ...

    @app.task(depends_on="gateway")
    async def guarded(number: int) -> None: ...

    return app


async def drain(url: str, task: str, jobs: int, **options: Any) -> float:
    """Jobs a second."""
    app = make_app(url)
    async with app:
        await app.tasks[task].enqueue_many([(number,) for number in range(jobs)], **options)
        began = time.perf_counter()
        await app.run_worker(until_idle=True)
        return jobs / (time.perf_counter() - began)


async def talk(url: str, seconds: float) -> float:
    """Statements a second that a busy worker sends about its dependencies."""
    app = make_app(url)
    async with app:
        store = (await app.engine()).store
        sent = 0
        for name in ("report", "outlooks", "swap_breaker"):
            real = getattr(store, name)

            async def counted(*given: Any, _real: Any = real, **options: Any) -> Any:
                nonlocal sent
                sent += 1
                return await _real(*given, **options)

            setattr(store, name, counted)
        working = asyncio.create_task(app.run_worker())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await app.tasks["guarded"].enqueue_many([(number,) for number in range(500)])
            await asyncio.sleep(0.1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return sent / seconds


async def measure(server: Postgres, rounds: int, jobs: int) -> dict[str, Any]:
    ratios: dict[str, list[float]] = {"guarded": [], "owner": []}
    for number in range(rounds):
        url = server.create_database(f"guarded_{number}")
        await Holdfast(url).migrate()
        for _ in range(2):
            plain = await drain(url, "plain", jobs)
            ratios["guarded"].append(await drain(url, "guarded", jobs) / plain)
            ratios["owner"].append(await drain(url, "plain", jobs, owner="ann") / plain)
    url = server.create_database("guarded_talk")
    await Holdfast(url).migrate()
    return {
        "guarded / plain": round(median(ratios["guarded"]), 3),
        "owner / plain": round(median(ratios["owner"]), 3),
        "statements a second for dependencies": round(await talk(url, 5.0), 2),
        "rounds": {name: [round(ratio, 3) for ratio in found] for name, found in ratios.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarded", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    asked = parser.parse_args()
    with Postgres(durable=True) as server:
        print(json.dumps(asyncio.run(measure(server, asked.rounds, asked.jobs)), indent=2))


if __name__ == "__main__":
    main()

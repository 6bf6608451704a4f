"""`holdfast bench`: measure this store on this machine.

Without `--url` it works on a temporary SQLite file. With it, it uses a queue of its own, and removes
its jobs at the end; their events stay in the log until retention removes them.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import PLAIN, JsonOption, UrlOption
from holdfast.cli.progress import progress_bar
from holdfast.cli.views import print_json

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.tasks.task import Task

bench = typer.Typer(**(PLAIN | {"no_args_is_help": False}))

BULK = 500
TASK = "holdfast.bench"  #: one name for all runs, so that only queues of their own tell them apart


@dataclass(frozen=True, slots=True)
class Measure:
    step: str
    jobs: int
    seconds: float
    per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None


@bench.command()
def measure(
    url: UrlOption = None,
    jobs: Annotated[int, typer.Option("--jobs", min=10, max=10_000_000, help="The number of jobs.")] = 2000,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, help="How many the worker runs at once.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Measure enqueueing, one at a time and in bulk, and running empty jobs."""
    from holdfast import logging as logs

    logs.configure(quiet=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        found, store = asyncio.run(
            _measure(url or f"sqlite:///{Path(folder) / 'bench.db'}", jobs, concurrency)
        )
    if as_json:
        print_json({"store": store, "concurrency": concurrency, "steps": [asdict(m) for m in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["step", "jobs", "seconds", "jobs/s", "p50 ms", "p99 ms"],
        [
            (m.step, f"{m.jobs:,}", f"{m.seconds:.2f}", f"{m.per_second:,.0f}", _ms(m.p50_ms), _ms(m.p99_ms))
            for m in found
        ],
        empty="",
    )
    print(f"{store.get('store')} {store.get('version', '')}, {concurrency} at once")


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


async def _measure(url: str, jobs: int, concurrency: int) -> tuple[list[Measure], dict[str, Any]]:
    from holdfast.app import Holdfast
    from holdfast.health.diagnostics import Diagnostics
    from holdfast.tasks.task import Policy, Task

    name = f"bench-{secrets.token_hex(4)}"
    app = Holdfast(url, concurrency=concurrency)
    ended, all_ended, total = 0, asyncio.Event(), 0

    async def nothing(number: int) -> None:
        nonlocal ended
        ended += 1
        if ended >= total:
            all_ended.set()

    task = app.tasks[TASK] = Task(nothing, TASK, Policy(queue=name, store_result=False), app.runtime)
    async with app:
        try:
            found = [await _one_by_one(task, max(10, jobs // 10)), await _in_bulk(task, jobs)]
            total = sum(m.jobs for m in found)
            began = time.perf_counter()
            working = asyncio.create_task(app.run_worker(queues=[name], maintenance=False))
            waiting = asyncio.create_task(all_ended.wait())
            with progress_bar("running", total) as progress:
                while not waiting.done() and not working.done():
                    await asyncio.wait([waiting, working], timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
                    progress(ended)
            for running in (waiting, working):
                running.cancel()  # the worker settles its jobs before it returns
            await _cancelled(waiting, working)
            found.append(_taken("run", total, time.perf_counter() - began))
            return found, await Diagnostics(app.runtime).store_facts()
        finally:
            await _clean_up(app, name)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):
            raise error


async def _one_by_one(task: Task[Any, Any], jobs: int) -> Measure:
    took = []
    with progress_bar("enqueue, one by one", jobs) as progress:
        for number in range(jobs):
            began = time.perf_counter()
            await task.enqueue(number)
            took.append(time.perf_counter() - began)
            progress(number + 1)
    cuts = statistics.quantiles(took, n=100)
    return _taken("enqueue, one by one", jobs, sum(took), cuts[49] * 1000, cuts[98] * 1000)


async def _in_bulk(task: Task[Any, Any], jobs: int) -> Measure:
    began = time.perf_counter()
    with progress_bar(f"enqueue, {BULK} at once", jobs) as progress:
        for start in range(0, jobs, BULK):
            await task.enqueue_many(range(start, min(start + BULK, jobs)))
            progress(start + BULK)
    return _taken(f"enqueue, {BULK} at once", jobs, time.perf_counter() - began)


def _taken(
    step: str, jobs: int, seconds: float, p50: float | None = None, p99: float | None = None
) -> Measure:
    return Measure(step, jobs, round(seconds, 4), round(jobs / seconds, 1), p50, p99)


async def _clean_up(app: Holdfast, name: str) -> None:
    while (
        page := await app.jobs.list(queue=name, internal=True, state=["queued", "processing"], limit=BULK)
    ).rows:
        for row in page.rows:
            await app.jobs.cancel(row.id, by="bench")
    await app.operations.purge(jobs=timedelta(), task=TASK)

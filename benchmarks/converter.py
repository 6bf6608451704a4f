"""What the converter costs over calling its gateway directly, and what an outage costs: `python -m benchmarks.converter`.

Two figures, each in one run on one machine. *throughput*: two workers convert N one-page PDFs that are queued already, against the
same PDFs sent straight to the gateway with the same concurrency; and the processor time of both, which hardly depends on what else
the machine does. Where all cores are busy, its ratio is that of the rates. Either way a few files go before those that count: what a
process does once, when it is new, is not the price of a file. *outage*: the gateway answers 502 for a while with M files queued; all
must complete afterwards by themselves, with few calls and no attempt burnt while held.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.proc import cpu_of_tree
from holdfast import Holdfast, JobRow, State
from systems.common.parts import Part
from systems.converter.samples import plain
from systems.converter.settings import Settings
from systems.converter.tasks import Converter, build

ROOT = Path(__file__).parents[1]
CONCURRENCY = 4  # of each worker
WARM = 50  # files before those that count
LOOK_EVERY = 0.2  # seconds: who looks takes processor time from those who work
MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def gateway() -> Iterator[str]:
    """Its own temporary files are in memory where that is possible: ext4 looks for a place for a new file among all that were
    removed in the last half minute, and the results that are measured would pay for it."""
    command = [sys.executable, "-m", "systems.converter.gateway", "--port", "0", "--faults"]
    environment = os.environ | ({"TMPDIR": str(MEMORY)} if MEMORY.is_dir() else {})
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


@contextlib.contextmanager
def workers(environment: dict[str, str], count: int) -> Iterator[None]:
    command = [sys.executable, "-m", "holdfast", "worker", "systems.converter.app:app"]
    started = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)


def prepared(folder: Path, url: str, **knobs: Any) -> tuple[Converter, dict[str, str]]:
    settings = Settings(
        database_url=f"sqlite:///{folder / 'jobs.db'}",
        gateway_url=url,
        uploads_dir=folder / "uploads",
        results_dir=folder / "results",
        worker_concurrency=CONCURRENCY,
        **knobs,
    )
    names = ("database_url", "gateway_url", "uploads_dir", "results_dir", "worker_concurrency", *knobs)
    environment = {name.upper(): str(getattr(settings, name)) for name in names}
    return build(settings), os.environ | environment | {"HOLDFAST_LOG_LEVEL": "error"}


def create_us(folder: Path) -> float:
    """What the kernel takes to make a file here, in microseconds of processor time. A result pays for it, and nobody who calls
    directly: up to five minutes after many files were removed, ext4 looks for a place among all of them, and takes ten times as
    long."""
    began = time.thread_time()
    for nth in range(100):
        (folder / f"new-{nth}").touch()
    return (time.thread_time() - began) * 1e6 / 100


async def upload(converter: Converter, pdfs: list[bytes]) -> None:
    for pdf in pdfs:
        job_id = converter.app.new_id()
        with Part(converter.source(job_id), "upload") as part:
            part.write(pdf)
            part.publish()
        await converter.convert.options(id=job_id, owner="bench").enqueue("text", size=len(pdf))


async def until(happened: Callable[[], Awaitable[bool]], *, seconds: float = 600.0) -> bool:
    """Whether it happened in time. Looks again and again: it happens in other processes."""
    end = time.monotonic() + seconds
    while not await happened():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(LOOK_EVERY)
    return True


async def directly(url: str, pdfs: list[bytes], concurrency: int) -> float:
    """Files a second without anything in between: read from memory, thrown away."""
    waiting = list(pdfs)
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:

        async def call() -> None:
            while waiting:
                pdf = waiting.pop()
                (await client.post("/convert", params={"mapping": "text"}, content=pdf)).raise_for_status()

        began = time.monotonic()
        await asyncio.gather(*(call() for _ in range(concurrency)))
        return len(pdfs) / (time.monotonic() - began)


async def throughput(folder: Path, files: int) -> dict[str, float]:
    """Directly, through the converter, directly again: what the machine does besides is seen in the difference."""
    pdfs = [plain(words=f"File {nth}.") for nth in range(files)]
    with gateway() as url:
        converter, environment = prepared(folder, url)
        await directly(url, pdfs[:WARM], 2 * CONCURRENCY)
        spent = cpu_of_tree(os.getpid())
        before = await directly(url, pdfs, 2 * CONCURRENCY)
        direct_cpu = (cpu_of_tree(os.getpid()) - spent) / files
        async with converter.app as app:
            await app.pause("convert")
            await upload(converter, pdfs[:WARM] + pdfs)

            async def both_are_here() -> bool:
                return len(await app.workers()) == 2

            async def complete() -> int:
                return await app.count(task="convert", state="complete")

            async def are_warm() -> bool:
                return await complete() >= WARM

            async def all_are_complete() -> bool:
                return await complete() == WARM + files

            with workers(environment, 2):
                await until(both_are_here)
                await app.resume("convert")
                await until(are_warm)
                counted, spent, looking = await complete(), cpu_of_tree(os.getpid()), time.process_time()
                await until(all_are_complete)
                cpu = cpu_of_tree(os.getpid()) - spent - (time.process_time() - looking)
                cpu /= WARM + files - counted
            ends = sorted([row.finished_at async for row in _rows(app) if row.finished_at is not None])
            rate = files / (ends[-1] - ends[WARM - 1]).total_seconds()
        after = await directly(url, pdfs, 2 * CONCURRENCY)
    direct = (before + after) / 2
    return {
        "direct_before_per_s": before,
        "direct_after_per_s": after,
        "converter_per_s": rate,
        "ratio": rate / direct,
        "direct_cpu_ms_per_file": 1000 * direct_cpu,
        "converter_cpu_ms_per_file": 1000 * cpu,
        "cpu_ratio": direct_cpu / cpu,
        "create_us": create_us(converter.settings.results_dir),
    }


async def outage(folder: Path, files: int, seconds: float) -> dict[str, float]:
    """Calls are counted by the attempts on record: every dispatch has one, also a trial whose attempt was given back."""
    pdfs = [plain(words=f"File {nth}.") for nth in range(files)]
    with gateway() as url, httpx2.Client(base_url=url) as switch:
        converter, environment = prepared(folder, url)
        async with converter.app as app:
            await upload(converter, pdfs)
            switch.post("/faults", json={"status": 502}).raise_for_status()

            async def is_open() -> bool:
                return any(seen.breaker.state == "open" for seen in await app.breakers())

            async def all_have_ended() -> bool:
                return (await app.count(task="convert", state=["complete", "failed"])) == files

            with workers(environment, 2):
                await until(is_open)
                tripped_at = datetime.now(UTC)
                await asyncio.sleep(seconds)
                switch.delete("/faults").raise_for_status()
                mended_at, began = datetime.now(UTC), time.monotonic()
                await until(all_have_ended)
                recovery = time.monotonic() - began
                rows = [row async for row in _rows(app)]
                attempts = [attempt for row in rows for attempt in await app.attempts(row.id)]
    later = [attempt for attempt in attempts if attempt.started_at > tripped_at]
    held = [attempt for attempt in later if attempt.started_at < mended_at]
    return {
        "complete": sum(row.state is State.COMPLETE for row in rows),
        "failed": sum(row.state is State.FAILED for row in rows),
        "calls_before_trip": len(attempts) - len(later),
        "calls_while_held": len(held),
        "attempts_burnt_while_held": sum(attempt.outcome in ("retry", "failed") for attempt in held),
        "calls_per_file_after_trip": len(later) / files,
        "recovery_s": recovery,
    }


async def _rows(app: Holdfast) -> AsyncIterator[JobRow]:
    after: str | None = None
    while True:
        page = await app.jobs(task="convert", after=after, limit=200)
        for row in page.rows:
            yield row
        if (after := page.next) is None:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=["throughput", "outage"])
    parser.add_argument("--files", type=int, default=0, help="500, or 300 for the outage")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the throughput; told are the medians, and each"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of the outage")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="converter-bench-") as place:
        folder = Path(place)
        if given.figure == "throughput":
            rounds = []
            for nth in range(given.rounds):
                (folder / str(nth)).mkdir()
                rounds.append(asyncio.run(throughput(folder / str(nth), given.files or 500)))
        else:
            rounds = [asyncio.run(outage(folder, given.files or 300, given.seconds))]
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        single = "  of " + " ".join(f"{value:.2f}" for value in values) if len(values) > 1 else ""
        print(f"{name:28} {statistics.median(values):10.2f}{single}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

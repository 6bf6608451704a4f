"""`python -m benchmarks.converter`: measure the converter's overhead, and the cost of an outage.

*throughput*: two workers convert N queued one-page PDFs, compared with sending the same PDFs straight to the
gateway with the same concurrency. The CPU time of both is measured too, because other load hardly affects it;
where all cores are busy, its ratio is that of the rates. A few files are converted first and not counted, to
leave out one-time costs.

*outage*: the gateway answers 502 for a while with M files queued. All must complete afterwards by themselves,
with few calls, and without an attempt that counts while the queue is held.
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
from holdfast import Holdfast, JobRow, State, new_job_id
from systems.common.parts import Part
from systems.converter.samples import plain
from systems.converter.settings import Settings
from systems.converter.tasks import Converter, build

ROOT = Path(__file__).parents[1]
CONCURRENCY = 4  # of each worker
WARM_UP = 50  # files that are not counted
POLL_EVERY = 0.2  # seconds; polling more often would take CPU time from the workers
MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def gateway() -> Iterator[str]:
    """Run the gateway and yield its URL.

    Its temporary files are in memory where possible. On ext4, creating a file searches all files removed in
    the last half minute, and that would slow down the measured results.
    """
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
    """Run *count* workers of the converter."""
    command = [sys.executable, "-m", "holdfast", "worker", "systems.converter.app:app"]
    started = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)


def prepared(folder: Path, url: str, **options: Any) -> tuple[Converter, dict[str, str]]:
    """Return a converter on *folder*, and the environment that gives its workers the same settings."""
    settings = Settings(
        database_url=f"sqlite:///{folder / 'jobs.db'}",
        gateway_url=url,
        uploads_dir=folder / "uploads",
        results_dir=folder / "results",
        worker_concurrency=CONCURRENCY,
        **options,
    )
    names = ("database_url", "gateway_url", "uploads_dir", "results_dir", "worker_concurrency", *options)
    environment = {name.upper(): str(getattr(settings, name)) for name in names}
    return build(settings), os.environ | environment | {"HOLDFAST_LOG_LEVEL": "error"}


def create_us(folder: Path) -> float:
    """Return the CPU microseconds that the kernel takes to create a file in *folder*.

    Only the converter pays for it, not direct calls. For up to five minutes after many files were removed,
    ext4 searches all of them, and takes ten times as long.
    """
    began = time.thread_time()
    for nth in range(100):
        (folder / f"new-{nth}").touch()
    return (time.thread_time() - began) * 1e6 / 100


async def upload(converter: Converter, pdfs: list[bytes]) -> None:
    """Store the PDFs and enqueue a job for each."""
    for pdf in pdfs:
        job_id = new_job_id()
        with Part(converter.source(job_id), "upload") as part:
            part.write(pdf)
            part.publish()
        await converter.convert.options(id=job_id, owner="bench").enqueue("text", size=len(pdf))


async def until(happened: Callable[[], Awaitable[bool]], *, seconds: float = 600.0) -> bool:
    """Poll *happened* until it is true, and return whether that was within *seconds*."""
    end = time.monotonic() + seconds
    while not await happened():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(POLL_EVERY)
    return True


async def directly(url: str, pdfs: list[bytes], concurrency: int) -> float:
    """Send the PDFs straight to the gateway, discard the results, and return the files a second."""
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
    """Measure direct calls, the converter, and direct calls again.

    The two direct rates show the effect of other load.
    """
    pdfs = [plain(words=f"File {nth}.") for nth in range(files)]
    with gateway() as url:
        converter, environment = prepared(folder, url)
        await directly(url, pdfs[:WARM_UP], 2 * CONCURRENCY)
        spent = cpu_of_tree(os.getpid())
        before = await directly(url, pdfs, 2 * CONCURRENCY)
        direct_cpu = (cpu_of_tree(os.getpid()) - spent) / files
        async with converter.app as app:
            await app.queues.pause("convert")
            await upload(converter, pdfs[:WARM_UP] + pdfs)

            async def both_are_here() -> bool:
                return len(await app.queues.workers()) == 2

            async def complete() -> int:
                return await app.jobs.count(task="convert", state="complete")

            async def are_warm() -> bool:
                return await complete() >= WARM_UP

            async def all_are_complete() -> bool:
                return await complete() == WARM_UP + files

            with workers(environment, 2):
                await until(both_are_here)
                await app.queues.resume("convert")
                await until(are_warm)
                counted, spent, own_cpu = await complete(), cpu_of_tree(os.getpid()), time.process_time()
                await until(all_are_complete)
                cpu = cpu_of_tree(os.getpid()) - spent - (time.process_time() - own_cpu)
                cpu /= WARM_UP + files - counted
            ends = sorted([row.finished_at async for row in _rows(app) if row.finished_at is not None])
            rate = files / (ends[-1] - ends[WARM_UP - 1]).total_seconds()
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
    """Measure an outage of *seconds* with *files* queued.

    Calls are counted by recorded attempts: each dispatch has one, even a trial whose attempt does not count.
    """
    pdfs = [plain(words=f"File {nth}.") for nth in range(files)]
    with gateway() as url, httpx2.Client(base_url=url) as switch:
        converter, environment = prepared(folder, url)
        async with converter.app as app:
            await upload(converter, pdfs)
            switch.post("/faults", json={"status": 502}).raise_for_status()

            async def is_open() -> bool:
                return any(seen.breaker.state == "open" for seen in await app.breakers.list())

            async def all_have_ended() -> bool:
                return (await app.jobs.count(task="convert", state=["complete", "failed"])) == files

            with workers(environment, 2):
                await until(is_open)
                tripped_at = datetime.now(UTC)
                await asyncio.sleep(seconds)
                switch.delete("/faults").raise_for_status()
                recovered_at, began = datetime.now(UTC), time.monotonic()
                await until(all_have_ended)
                recovery = time.monotonic() - began
                rows = [row async for row in _rows(app)]
                attempts = [attempt for row in rows for attempt in await app.jobs.attempts(row.id)]
    later = [attempt for attempt in attempts if attempt.started_at > tripped_at]
    while_held = [attempt for attempt in later if attempt.started_at < recovered_at]
    return {
        "complete": sum(row.state is State.COMPLETE for row in rows),
        "failed": sum(row.state is State.FAILED for row in rows),
        "calls_before_trip": len(attempts) - len(later),
        "calls_while_held": len(while_held),
        "attempts_burnt_while_held": sum(attempt.outcome in ("retry", "failed") for attempt in while_held),
        "calls_per_file_after_trip": len(later) / files,
        "recovery_s": recovery,
    }


async def _rows(app: Holdfast) -> AsyncIterator[JobRow]:
    after: str | None = None
    while True:
        page = await app.jobs.list(task="convert", after=after, limit=200)
        for row in page.rows:
            yield row
        if (after := page.next) is None:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=["throughput", "outage"])
    parser.add_argument("--files", type=int, default=0, help="500, or 300 for the outage")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the throughput; medians and single figures are printed"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of the outage")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="converter-bench-") as path:
        folder = Path(path)
        if arguments.figure == "throughput":
            rounds = []
            for nth in range(arguments.rounds):
                (folder / str(nth)).mkdir()
                rounds.append(asyncio.run(throughput(folder / str(nth), arguments.files or 500)))
        else:
            rounds = [asyncio.run(outage(folder, arguments.files or 300, arguments.seconds))]
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        single = "  of " + " ".join(f"{value:.2f}" for value in values) if len(values) > 1 else ""
        print(f"{name:28} {statistics.median(values):10.2f}{single}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

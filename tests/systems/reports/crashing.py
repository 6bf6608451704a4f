"""Workers that are killed on purpose: `python -m tests.systems.reports.crashing`, with the settings in the environment.

A report whose instructions are `crash after llm` kills its worker with SIGKILL there, in its first attempt: *before* means that the
step has done its work and nothing is recorded yet, *after* that it is recorded. Each worker is a fork of one of four processes, which have
imported everything; when one dies the next begins, until all reports have ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # noqa: F401 - here, so that no fork has to

from holdfast import Holdfast, Job
from systems.reports.chain import STEPS, Chain
from systems.reports.settings import Settings
from systems.reports.tasks import build

KEEPERS = 4
POINTS = [f"crash {when} {step}" for step in (*STEPS, "commit") for when in ("before", "after")]


def die_at(job: Job, wanted: str, when: str, step: str) -> None:
    if job.attempt == 1 and wanted == f"crash {when} {step}":
        os.kill(os.getpid(), signal.SIGKILL)


class Crashing(Chain):
    """The chain, with a job that dies where it was told to."""

    def __init__(self, job: Job, settings: Settings, source: str, schema: Any, instructions: str) -> None:
        super().__init__(_Mined(job, instructions), settings, source, schema, instructions)  # type: ignore[arg-type]


class _Mined:
    def __init__(self, job: Job, wanted: str) -> None:
        self._job, self._wanted = job, wanted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    async def step(self, name: str, function: Any, *arguments: Any) -> Any:
        async def done() -> Any:
            result = await function(*arguments)
            die_at(self._job, self._wanted, "before", name)
            return result

        result = await self._job.step(name, done)
        die_at(self._job, self._wanted, "after", name)
        return result

    @asynccontextmanager
    async def transaction(self, result: Any) -> Any:
        async with self._job.transaction(result) as connection:
            yield connection
            die_at(self._job, self._wanted, "before", "commit")
        die_at(self._job, self._wanted, "after", "commit")


def main() -> None:
    import systems.reports.tasks

    vars(systems.reports.tasks)["Chain"] = Crashing
    keepers = [os.fork() or _keep() for _ in range(KEEPERS)]
    ends = [os.waitpid(keeper, 0)[1] for keeper in keepers]
    raise SystemExit(any(ends))


def _keep() -> int:
    """A worker, and the next when it was killed, until none is needed any more."""
    for _ in range(2 * len(POINTS)):
        child = os.fork()
        if child == 0:
            asyncio.run(_work())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            os._exit(0)
        assert os.WTERMSIG(status) == signal.SIGKILL, status
    os._exit(1)


async def _work() -> None:
    app: Holdfast = build(Settings.read(os.environ), poll="200ms", reclaim_every="200ms").app
    async with app:
        worker = asyncio.create_task(app.run_worker(concurrency=1))
        while await _are_open(app) and not worker.done():  # noqa: ASYNC110 - other processes ring no bell here
            await asyncio.sleep(0.2)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def _are_open(app: Holdfast) -> bool:
    counts = await app.jobs.counts()
    return bool(counts.get("queued") or counts.get("processing"))


if __name__ == "__main__":
    main()

"""The app that the benchmark's Holdfast workers run: `python -m holdfast worker benchmarks.app:app`.

It has default settings, except that a failed attempt is retried at once. The database is
HOLDFAST_DATABASE_URL.
"""

from __future__ import annotations

from benchmarks.marks import mark, mark_delay
from holdfast import THIS_JOB, Holdfast, Job, Retry

AT_ONCE = Retry(3, base="0s", jitter="none")


class Once(Exception):
    """The error that `fail` raises on its first attempt."""


def make() -> Holdfast:
    """Return an app with the tasks of the benchmark."""
    app = Holdfast()

    @app.task
    async def noop(value: int) -> None:
        mark()

    @app.task(retry=AT_ONCE)
    async def fail(value: int, *, job: Job = THIS_JOB) -> None:
        mark()
        if job.attempt == 1:
            raise Once("the first attempt fails")

    @app.task
    async def late(sent: float) -> None:
        mark_delay(sent)

    return app


app = make()

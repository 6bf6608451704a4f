"""The adapter of Procrastinate, on psycopg with LISTEN/NOTIFY. Size: its `concurrency`.

Finished jobs are kept, as by default.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

from benchmarks.adapters.base import Adapter
from benchmarks.adapters.sqlcopy import copy_row
from benchmarks.marks import mark, mark_delay


class Queue(Adapter):
    batch = 1000

    def _app(self) -> App:
        app = App(connector=PsycopgConnector(conninfo=self.url, min_size=2, max_size=20))

        @app.task(name="noop", queue="q")
        async def noop(value: int) -> None:
            mark()

        @app.task(name="fail", queue="q", pass_context=True, retry=RetryStrategy(max_attempts=3, wait=0))
        async def fail(context: JobContext, value: int) -> None:
            mark()
            if context.job.attempts == 0:
                raise ValueError("the first attempt fails")

        @app.task(name="late", queue="q")
        async def late(value: float) -> None:
            mark_delay(value)

        return app

    async def install(self) -> None:
        async with self._app().open_async() as app:
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        self.app = self._app()
        await self.app.open_async()

    async def close(self) -> None:
        await self.app.close_async()

    async def put(self, task: str, value: float) -> None:
        await self.app.tasks[task].defer_async(value=value)

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        await self.app.tasks[task].batch_defer_async(*[{"value": value} for value in values])

    async def put_future(self, count: int) -> None:
        await self.app.tasks["noop"].configure(schedule_in={"days": 1}).defer_async(value=0)
        copy_row(self.url, "procrastinate_jobs", "id", None, count - 1)

    async def worker(self, size: int) -> None:
        logging.disable(logging.CRITICAL)
        async with self._app().open_async() as app:
            await app.run_worker_async(queues=["q"], concurrency=size, fetch_job_polling_interval=1.0)

"""Reports for tests: the real app on a real store, a real stand-in model, and a worker of this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from holdfast import Handle, JobFailed, JobRow
from systems.reports.records import Capture, Records, open_records
from systems.reports.samples import invoice
from systems.reports.settings import Settings
from systems.reports.tasks import Reports, build
from tests.systems.provider.providers import RunningProvider

#: Quick in everything, and with breakers that never open: tests that want one say so.
QUICK: dict[str, Any] = {
    "retry_first_ms": 10,
    "circuit_window": "1000",
    "circuit_fail_threshold": 1.0,
    "model_timeout_ms": 5_000,
}


class World:
    """One database, one folder, one model."""

    def __init__(self, folder: Path, database_url: str, provider: RunningProvider, **knobs: Any) -> None:
        self.folder, self.provider = folder, provider
        self.documents, self.out = folder / "documents", folder / "reports"
        self.settings = Settings(
            **{
                "database_url": database_url,
                "documents_url": (str(self.documents),),
                "reports_url": str(self.out),
                "schemas_dir": folder / "schemas",
                "model_url": f"{provider.url}/v1",
                **QUICK,
                **knobs,
            }
        )
        self.documents.mkdir(exist_ok=True)
        self.settings.schemas_dir.mkdir(exist_ok=True)
        self.reports: Reports = build(self.settings, poll="20ms", reclaim_every="50ms")
        self.app = self.reports.app

    def put(self, name: str, data: str | bytes | None = None) -> str:
        target = self.documents / name
        target.parent.mkdir(parents=True, exist_ok=True)
        text = invoice(1) if data is None else data
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[Records]:
        """The app is open and a worker works, until the block is left."""
        async with self.app, open_records(self.settings.database_url) as records:
            worker = asyncio.create_task(self.app.run_worker())
            try:
                yield records
            finally:
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)

    async def made(self, source: str, schema: Any = "invoice", **more: Any) -> JobRow:
        """Ask for a report, and wait for its end."""
        return await self.ended(await self.reports.report.enqueue(source, schema, **more))

    async def ended(self, handle: Handle[Any]) -> JobRow:
        with contextlib.suppress(JobFailed):
            await handle.result(timeout="20s")
        return await handle.job()

    async def again(self, job_id: str, **more: Any) -> JobRow:
        """Retry it, and wait for its end."""
        await self.app.jobs.retry(job_id, **more)
        with contextlib.suppress(JobFailed):
            await self.app.jobs.result(job_id, timeout="20s")
        return await self.app.jobs.get(job_id)

    def report_of(self, row: JobRow) -> bytes:
        key: str = row.result["key"]
        return (self.out / key).read_bytes()


async def only_capture(records: Records, row: JobRow) -> Capture:
    [capture] = await records.captures_of(row.id)
    return capture

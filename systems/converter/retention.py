"""Remove files whose retention has ended (C9): sources, results, and leftovers of killed processes.

The engine's retention decides when a result has expired, and this module removes its file. A source is
removed when it is old and its job has ended. A file without a job belongs to an upload that was cut short or
had a twin, or to a purged job. It is removed when it is too old for any upload to still enqueue it. Sweeps
may repeat and overlap.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

import anyio.to_thread

from holdfast import Holdfast, JobRow, State, UnknownJob
from systems.common.parts import sweep_parts
from systems.common.rows import rows_of
from systems.converter.paths import job_of
from systems.converter.settings import Settings

#: A file this old without a job is an orphan: no upload takes that long from its last byte to its job.
ORPHAN_AFTER_SEC = 3600.0
_BATCH = 100


class Swept(TypedDict):
    """The number of files removed, by kind."""

    sources: int
    results: int
    parts: int


class _File(NamedTuple):
    path: Path
    job_id: str
    age: float


async def sweep(app: Holdfast, settings: Settings, *, now: float | None = None) -> Swept:
    """Remove the files whose retention has ended by *now*, in seconds since the epoch."""
    at = time.time() if now is None else now

    def source_has_ended(row: JobRow, age: float) -> bool:
        return age >= settings.source_retention_sec and row.state not in (State.QUEUED, State.PROCESSING)

    def result_has_ended(row: JobRow, _age: float) -> bool:
        return row.expired_at is not None

    return Swept(
        sources=await _sweep(app, settings.uploads_dir, "*.pdf", at, source_has_ended),
        results=await _sweep(app, settings.results_dir, "*.xml", at, result_has_ended)
        + await _sweep(app, settings.results_dir, "*.removed", at, lambda _row, _age: False),
        parts=await anyio.to_thread.run_sync(_sweep_parts, settings, at),
    )


def _sweep_parts(settings: Settings, at: float) -> int:
    return sum(sweep_parts(folder, now=at) for folder in {settings.uploads_dir, settings.results_dir})


async def _sweep(
    app: Holdfast, folder: Path, pattern: str, at: float, has_ended: Callable[[JobRow, float], bool]
) -> int:
    files = await anyio.to_thread.run_sync(lambda: list(_files(folder, pattern, at)))
    swept = 0
    for first in range(0, len(files), _BATCH):
        batch = files[first : first + _BATCH]
        rows = await rows_of(app, [file.job_id for file in batch])
        for file in batch:
            row = rows.get(file.job_id)
            if has_ended(row, file.age) if row else await _is_orphan(app, file):
                await anyio.to_thread.run_sync(file.path.unlink, True)
                swept += 1
    return swept


async def _is_orphan(app: Holdfast, file: _File) -> bool:
    """Return whether the file has no job. Each job is read again, since a removed file cannot be restored."""
    if file.age < ORPHAN_AFTER_SEC:
        return False
    try:
        await app.jobs.get(file.job_id)
    except UnknownJob:
        return True
    return False


def _files(folder: Path, pattern: str, at: float) -> Iterator[_File]:
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # another process sweeps too
            if (job_id := job_of(path)) is not None:
                yield _File(path, job_id, at - path.stat().st_mtime)

"""Files whose time is over (C9): sources, results, what killed processes left behind.

The engine's own retention says when a result has expired; the files follow it here. A source goes when it is old and its job
has ended. A file without a job is of an upload that was cut short or had a twin, or of a job that was purged; it goes when it
is so old that no upload can be about to enqueue it. Running twice, or two at a time, changes nothing.
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
from systems.converter.settings import Settings
from systems.converter.storing import job_of

#: No upload takes this long from its last byte to its job.
UNKNOWN_FOR_SEC = 3600.0
_AT_A_TIME = 100


class Swept(TypedDict):
    """How many files were removed."""

    sources: int
    results: int
    parts: int


class _File(NamedTuple):
    path: Path
    job_id: str
    age: float


async def sweep(app: Holdfast, settings: Settings, *, now: float | None = None) -> Swept:
    """Remove what is over at *now*, in seconds since the epoch."""
    at = time.time() if now is None else now

    def source_is_over(row: JobRow, age: float) -> bool:
        return age >= settings.source_retention_sec and row.state not in (State.QUEUED, State.PROCESSING)

    def result_is_over(row: JobRow, _age: float) -> bool:
        return row.expired_at is not None

    return Swept(
        sources=await _sweep(app, settings.uploads_dir, "*.pdf", at, source_is_over),
        results=await _sweep(app, settings.results_dir, "*.xml", at, result_is_over),
        parts=await anyio.to_thread.run_sync(_sweep_parts, settings, at),
    )


def _sweep_parts(settings: Settings, at: float) -> int:
    return sum(sweep_parts(folder, now=at) for folder in {settings.uploads_dir, settings.results_dir})


async def _sweep(
    app: Holdfast, folder: Path, pattern: str, at: float, is_over: Callable[[JobRow, float], bool]
) -> int:
    files = await anyio.to_thread.run_sync(lambda: list(_files(folder, pattern, at)))
    swept = 0
    for first in range(0, len(files), _AT_A_TIME):
        some = files[first : first + _AT_A_TIME]
        rows = await rows_of(app, [file.job_id for file in some])
        for file in some:
            row = rows.get(file.job_id)
            over = is_over(row, file.age) if row else await _is_nobodys(app, file)
            if over:
                await anyio.to_thread.run_sync(file.path.unlink, True)
                swept += 1
    return swept


async def _is_nobodys(app: Holdfast, file: _File) -> bool:
    """Asked for by itself: what is removed here has nothing that could bring it back."""
    if file.age < UNKNOWN_FOR_SEC:
        return False
    try:
        await app.job(file.job_id)
    except UnknownJob:
        return True
    return False


def _files(folder: Path, pattern: str, at: float) -> Iterator[_File]:
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # somebody else sweeps too
            if (job_id := job_of(path)) is not None:
                yield _File(path, job_id, at - path.stat().st_mtime)

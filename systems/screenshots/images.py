"""Pictures on disk.

A file is named after its job, lease and format, so a worker that lost its lease overwrites nothing.

Files are written atomically. A picture is removed when its job's result has expired. A picture that no job's
result names comes from an attempt that was killed or late, and is removed when no running attempt can still
refer to it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread

from holdfast import Holdfast, Job, JobRow, State
from systems.common.parts import Part, sweep_parts
from systems.common.rows import rows_of
from systems.screenshots.shot import FORMATS, Picture

_NAME = re.compile(
    rf"([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})\.[0-9]{{1,20}}\.(?:{'|'.join(FORMATS)})"
)
#: Longer than any attempt takes from writing the picture to completing the job.
UNNAMED_FOR_SEC = 3600.0
_AT_A_TIME = 100


async def store(folder: Path, job: Job, picture: Picture) -> dict[str, Any]:
    """Write the picture durably to *folder*, and return the job's result."""
    name = f"{job.id}.{job.epoch}.{picture.format}"

    def write() -> None:
        with Part(folder / name, "new") as part:
            part.write(picture.data)
            part.publish()

    await anyio.to_thread.run_sync(write)
    return {
        "file": name,
        "format": picture.format,
        "width": picture.width,
        "height": picture.height,
        "bytes": len(picture.data),
        "finalUrl": picture.url,
        "pageStatus": picture.status,
    }


def picture_of(folder: Path, row: JobRow) -> Path | None:
    """Return the file of a complete job; None when it has expired or is missing."""
    name = row.result.get("file") if isinstance(row.result, dict) else None
    if row.expired_at is not None or not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    path = folder / name
    return path if path.exists() else None


async def sweep(app: Holdfast, folder: Path, *, now: float | None = None) -> int:
    """Remove the files that are no longer needed at *now* (seconds since the epoch), and return their number.

    Several processes can do this at the same time.
    """
    at = time.time() if now is None else now
    files = await anyio.to_thread.run_sync(lambda: list(_files(folder)))
    swept = await anyio.to_thread.run_sync(lambda: sweep_parts(folder, now=at))
    for first in range(0, len(files), _AT_A_TIME):
        some = files[first : first + _AT_A_TIME]
        rows = await rows_of(app, sorted({job_id for _, job_id, _ in some}))
        for path, job_id, changed in some:
            if _is_unneeded(rows.get(job_id), path.name, at - changed):
                await anyio.to_thread.run_sync(path.unlink, True)
                swept += 1
    return swept


def _is_unneeded(row: JobRow | None, name: str, age: float) -> bool:
    if row is None:
        return age >= UNNAMED_FOR_SEC
    if row.expired_at is not None:
        return True
    is_result = (
        row.state is State.COMPLETE and isinstance(row.result, dict) and row.result.get("file") == name
    )
    return not is_result and age >= UNNAMED_FOR_SEC


def _files(folder: Path) -> Iterator[tuple[Path, str, float]]:
    for path in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):  # another process may sweep too
            if found := _NAME.fullmatch(path.name):
                yield path, found[1], path.stat().st_mtime

"""The paths of sources and results on disk. Names are job ids and never come from the sender."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast import UsageError

_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def source_path(uploads: Path, job_id: str) -> Path:
    """Return the path of a job's PDF."""
    return uploads / f"{_checked(job_id)}.pdf"


def result_path(results: Path, job_id: str) -> Path:
    """Return the path of a job's XML, which exists once the job is complete."""
    return results / f"{_checked(job_id)}.xml"


def removed_path(results: Path, job_id: str) -> Path:
    """Return the path of the mark of a job that its user has removed."""
    return results / f"{_checked(job_id)}.removed"


def job_of(path: Path) -> str | None:
    """Return the id of the job whose source, result or mark *path* is, or None for any other file."""
    return path.stem if _NAME.fullmatch(path.stem) else None


def _checked(job_id: str) -> str:
    if not _NAME.fullmatch(job_id):
        raise UsageError("this is not a job id; give the id that the upload returned")
    return job_id

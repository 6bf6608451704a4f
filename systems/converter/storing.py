"""Where sources and results are on disk. A name is made by us, never by the sender."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast import UsageError

_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def source_path(uploads: Path, job_id: str) -> Path:
    """Where the PDF of this job is."""
    return uploads / f"{_checked(job_id)}.pdf"


def result_path(results: Path, job_id: str) -> Path:
    """Where the XML of this job is, once it is complete."""
    return results / f"{_checked(job_id)}.xml"


def job_of(path: Path) -> str | None:
    """The id of the job whose source or result this is; None for a file that is none of ours."""
    return path.stem if _NAME.fullmatch(path.stem) else None


def _checked(job_id: str) -> str:
    if not _NAME.fullmatch(job_id):
        raise UsageError("this is not the id of a job, so no file has its name")
    return job_id

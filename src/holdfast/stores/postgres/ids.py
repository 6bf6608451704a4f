"""Ids of jobs as PostgreSQL wants them: uuids, and nothing else is one of ours."""

from __future__ import annotations

from holdfast.domain.job import JobId
from holdfast.errors import UnknownJob


def is_uuid(text: str) -> bool:
    return len(text) == 36 and all(c in "0123456789abcdef-" for c in text.lower())


def known(job_id: JobId) -> JobId:
    """The same id, or `UnknownJob`: asking PostgreSQL for it would be an error of another kind."""
    if not is_uuid(job_id):
        raise UnknownJob(job_id)
    return job_id

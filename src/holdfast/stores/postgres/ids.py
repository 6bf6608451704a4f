"""Check ids of jobs: each is a UUID, and PostgreSQL refuses a parameter that is none."""

from __future__ import annotations

import re

from holdfast.errors import UnknownJob
from holdfast.jobs.job import JobId

_UUID = re.compile("-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)), re.IGNORECASE | re.ASCII)


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def known(job_id: JobId) -> JobId:
    """Return *job_id* if it is a UUID, and raise `UnknownJob` if not."""
    if not is_uuid(job_id):
        raise UnknownJob(job_id)
    return job_id

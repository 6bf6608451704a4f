"""Ids of jobs as PostgreSQL wants them: uuids, and nothing else is one of ours."""

from __future__ import annotations

import re

from holdfast.domain.job import JobId
from holdfast.errors import UnknownJob

_UUID = re.compile("-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)), re.IGNORECASE | re.ASCII)


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def known(job_id: JobId) -> JobId:
    """The same id, or `UnknownJob`: asking PostgreSQL for it would be an error of another kind."""
    if not is_uuid(job_id):
        raise UnknownJob(job_id)
    return job_id

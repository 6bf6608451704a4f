"""A job that a worker has claimed, without a store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.jobs.job import Claimed, JobId, Lane, Lease


def claimed_job(lane: Lane, **fields: Any) -> Claimed:
    """Return a job in its first attempt, without options. *fields* are those of `Claimed` that differ."""
    return Claimed(
        lease=Lease(JobId("one"), 1),
        lane=lane,
        priority=0,
        key=None,
        payload="{}",
        attempt=1,
        crashes=0,
        generation=1,
        until_deadline=None,
        waited=timedelta(),
        max_attempts=5,
        version=1,
        owner=None,
        timeout=None,
        start_within=None,
        trace=None,
    )._replace(**fields)

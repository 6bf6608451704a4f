"""How the rows of both databases become jobs that wait to be told of (`holdfast.engine.external_tasks` is the contract)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.domain.external_task import WaitingExternalTask
from holdfast.domain.job import JobId
from holdfast.stores.encoding import Moment, maybe


def waiting_jobs(rows: Iterable[Sequence[Any]], moment: Moment) -> list[WaitingExternalTask]:
    """Of id, task, generation, attempt, payload, version, trace, since, due, deadline."""
    return [
        WaitingExternalTask._make(
            (JobId(str(job_id)), *told, moment(since), bool(due), maybe(deadline, moment))
        )
        for job_id, *told, since, due, deadline in rows
    ]

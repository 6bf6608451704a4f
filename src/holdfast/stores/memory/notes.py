"""What is put on a job's record without moving it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.job import JobId
from holdfast.domain.moves import Kind
from holdfast.stores.memory.tables import Tables


def note(tables: Tables, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
    job = tables.find(job_id)
    for event in tables.events:
        if (event.job_id, event.kind, event.meta.get("name")) == (job_id, kind.name, name):
            return False
    tables.record(kind, job, name=name, **meta)
    return True

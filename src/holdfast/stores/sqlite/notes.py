"""What is put on a job's record without moving it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.job import JobId
from holdfast.domain.moves import Kind
from holdfast.stores.sqlite.move import Move

_NOTED = "SELECT 1 FROM holdfast_event WHERE job = ? AND kind = ? AND moves ->> '$[0][3].name' = ?"


def note(move: Move, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
    job = move.find(job_id)
    if move.connection.execute(_NOTED, (job_id, int(kind), name)).fetchone() is not None:
        return False
    said = {"name": name, **meta}
    move.record(move.next_seq(), kind, [(*job.lease, job.attempt, said)], job=job_id)
    return True

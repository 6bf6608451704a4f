"""What is put on a job's record without moving it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.job import JobId, Lease
from holdfast.domain.moves import Kind
from holdfast.errors import UnknownJob
from holdfast.stores.postgres.ids import known
from holdfast.stores.postgres.move import Move

#: A caller that records the same note meanwhile waits here, and then sees it.
_LOCK = "SELECT 1 FROM holdfast.job WHERE id = $1 FOR NO KEY UPDATE"
_NOTED = "SELECT 1 FROM holdfast.event WHERE job_id = $1 AND kind = $2::smallint AND metas[1] ->> 'name' = $3"


async def note(move: Move, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
    await move.connection.execute(_LOCK, known(job_id))
    row = await move.connection.fetchrow("SELECT epoch, attempt FROM holdfast.jobs WHERE id = $1", job_id)
    if row is None:
        raise UnknownJob(job_id)
    if await move.connection.fetchval(_NOTED, job_id, int(kind), name) is not None:
        return False
    epoch, attempt = row
    await move.record_one(kind, Lease(job_id, epoch), attempt, {"name": name, **meta})
    return True

"""Check that a job is still as a person has read it, and keep it so until the end of the transaction."""

from __future__ import annotations

from holdfast.errors import Changed, UnknownJob
from holdfast.jobs.job import JobId
from holdfast.jobs.precondition import Precondition, Version
from holdfast.stores.postgres.ids import known
from holdfast.stores.postgres.move import Move

#: Exactly one of these tables has the row of a job, and every move deletes that row or changes it.
_LOCK = """WITH r AS (SELECT 1 FROM holdfast.ready WHERE id = $1::uuid FOR UPDATE),
                d AS (SELECT 1 FROM holdfast.deferred WHERE id = $1::uuid FOR UPDATE),
                l AS (SELECT 1 FROM holdfast.lease WHERE job_id = $1::uuid FOR UPDATE),
                f AS (SELECT 1 FROM holdfast.done WHERE job_id = $1::uuid FOR UPDATE)
           SELECT 1 FROM r UNION ALL SELECT 1 FROM d UNION ALL SELECT 1 FROM l UNION ALL SELECT 1 FROM f"""
_TRIES = 20
_VERSION = (
    "SELECT state, generation, epoch, manual_retry_count, updated_at FROM holdfast.jobs WHERE id = $1::uuid"
)
#: The version as text, as `Version` writes it.
WRITTEN = (
    "SELECT concat_ws('-', state, generation, epoch, manual_retry_count,"
    " (extract(epoch FROM updated_at) * 1000000)::bigint) FROM holdfast.jobs WHERE id = $1::uuid"
)


async def check(move: Move, job_id: JobId, precondition: Precondition) -> None:
    """Lock the row of a job, and raise `Changed` if its version is not one of *precondition*, or `UnknownJob` if there is none.

    The version is read after the lock, by a statement that sees what the holder of the lock before has committed.
    """
    if precondition.versions is None:
        return
    for _ in range(_TRIES):
        is_locked = await move.connection.fetchval(_LOCK, known(job_id)) is not None
        row = await move.connection.fetchrow(_VERSION, known(job_id))
        if row is None:
            raise UnknownJob(job_id)
        if not precondition.admits(Version.of(*row)):
            break
        if is_locked:  # else it has just gone from one table to another, as a job does that becomes due
            return
    raise Changed(f"job {job_id}")

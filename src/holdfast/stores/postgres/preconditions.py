"""Whether a job is still as a person has read it, and stays so until the end of their move."""

from __future__ import annotations

from holdfast.domain.job import JobId
from holdfast.domain.precondition import Precondition, Version
from holdfast.errors import Changed, UnknownJob
from holdfast.stores.postgres.ids import known
from holdfast.stores.postgres.move import Move

#: The tables of which exactly one holds the row of a job: every move takes that row away, or changes it.
_LOCK = """WITH r AS (SELECT 1 FROM holdfast.ready WHERE id = $1::uuid FOR UPDATE),
                d AS (SELECT 1 FROM holdfast.deferred WHERE id = $1::uuid FOR UPDATE),
                l AS (SELECT 1 FROM holdfast.lease WHERE job_id = $1::uuid FOR UPDATE),
                f AS (SELECT 1 FROM holdfast.done WHERE job_id = $1::uuid FOR UPDATE)
           SELECT 1 FROM r UNION ALL SELECT 1 FROM d UNION ALL SELECT 1 FROM l UNION ALL SELECT 1 FROM f"""
_LOOKS = 20
_VERSION = (
    "SELECT state, generation, epoch, manual_retry_count, updated_at FROM holdfast.jobs WHERE id = $1::uuid"
)
#: The same, as `Version` writes itself.
WRITTEN = (
    "SELECT concat_ws('-', state, generation, epoch, manual_retry_count,"
    " (extract(epoch FROM updated_at) * 1000000)::bigint) FROM holdfast.jobs WHERE id = $1::uuid"
)


async def check(move: Move, job_id: JobId, precondition: Precondition) -> None:
    """Inside a transaction. The row is locked first and the version read after it, by a statement that sees what the holder of the
    lock before has committed."""
    if precondition.versions is None:
        return
    for _ in range(_LOOKS):
        is_locked = await move.connection.fetchval(_LOCK, known(job_id)) is not None
        row = await move.connection.fetchrow(_VERSION, known(job_id))
        if row is None:
            raise UnknownJob(job_id)
        if not precondition.admits(Version.of(*row)):
            break
        if (
            is_locked
        ):  # else it went from one table to another under our hands, as a job does that becomes due
            return
    raise Changed(f"job {job_id}")

"""What is stored of attempts beside their results: log lines, tracebacks, and records of artifacts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.errors import LeaseLost
from holdfast.jobs.job import Artifact, Lease, Settlement
from holdfast.jobs.retention import Retention
from holdfast.jobs.tracebacks import Traceback
from holdfast.stores.encoding import to_json, value_of
from holdfast.stores.postgres.move import Move
from holdfast.stores.tracebacks import KEPT_UNUSED


async def keep_logs(move: Move, settlements: Sequence[Settlement]) -> None:
    """Store the log lines of *settlements*. An attempt keeps the lines that were stored first."""
    await move.connection.execute(
        "INSERT INTO holdfast.attempt_log (job_id, epoch, lines)"
        " SELECT s.id, s.epoch, s.lines FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS s(id, epoch, lines)"
        " JOIN holdfast.job j ON j.id = s.id ON CONFLICT DO NOTHING",
        [s.lease.job_id for s in settlements],
        [s.lease.epoch for s in settlements],
        [to_json(s.logs) for s in settlements],
    )


async def keep_tracebacks(move: Move, tracebacks: Sequence[Traceback]) -> None:
    """Store *tracebacks*, and record that those which are stored already are in use."""
    await move.connection.execute(
        "INSERT INTO holdfast.traceback (key, text, at)"
        " SELECT t.key, t.text, holdfast.clock() FROM unnest($1::text[], $2::text[]) AS t(key, text)"
        " ON CONFLICT (key) DO UPDATE SET at = excluded.at",
        [one.key for one in tracebacks],
        [one.text for one in tracebacks],
    )


async def purge_tracebacks(move: Move, limit: int) -> int:
    """Remove up to *limit* tracebacks to which no attempt refers any more, and return how many were removed."""
    return len(await move.run("purge_tracebacks", KEPT_UNUSED, limit))


async def record_artifact(move: Move, lease: Lease, reference: str, name: str | None, size: int) -> None:
    if not await move.run("record_artifact", *lease, reference, name, size):
        raise LeaseLost(*lease)


async def artifacts_due(
    move: Move, task: str | None, keep: Retention, limit: int, but: Collection[str]
) -> list[Artifact]:
    rows = await move.run("artifacts_due", keep.results, keep.jobs, task, limit, list(but))
    return [value_of(Artifact, row) for row in rows]


async def forget_artifacts(move: Move, artifacts: Sequence[Artifact]) -> None:
    await move.connection.execute(
        "DELETE FROM holdfast.artifact a USING unnest($1::uuid[], $2::bigint[], $3::text[]) AS g(id, epoch, reference)"
        " WHERE a.job_id = g.id AND a.epoch = g.epoch AND a.reference = g.reference",
        [kept.job_id for kept in artifacts],
        [kept.epoch for kept in artifacts],
        [kept.reference for kept in artifacts],
    )

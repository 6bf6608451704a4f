"""What is kept of attempts beside their results: what was said during them, and what they have put outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from holdfast.domain.job import Artifact, Lease, Settlement
from holdfast.domain.tracebacks import Traceback
from holdfast.engine.ports import Retention
from holdfast.errors import LeaseLost
from holdfast.stores.encoding import artifact, to_json
from holdfast.stores.postgres.move import Move
from holdfast.stores.tracebacks import KEPT_UNUSED


async def keep_logs(move: Move, settlements: Sequence[Settlement]) -> None:
    """Of those that have any. Sent again, or by a worker that was replaced, they are still only of their own attempt."""
    said = [s for s in settlements if s.logs]
    if said:
        await move.connection.execute(
            "INSERT INTO holdfast.attempt_log (job_id, epoch, lines)"
            " SELECT s.id, s.epoch, s.lines FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS s(id, epoch, lines)"
            " JOIN holdfast.job j ON j.id = s.id ON CONFLICT DO NOTHING",
            [s.lease.job_id for s in said],
            [s.lease.epoch for s in said],
            [to_json(s.logs) for s in said],
        )


async def keep_tracebacks(move: Move, tracebacks: Sequence[Traceback]) -> None:
    """Write those that are not there yet, and say of the others that they are in use."""
    if tracebacks:
        await move.connection.execute(
            "INSERT INTO holdfast.traceback (key, text, at)"
            " SELECT t.key, t.text, holdfast.clock() FROM unnest($1::text[], $2::text[]) AS t(key, text)"
            " ON CONFLICT (key) DO UPDATE SET at = excluded.at",
            [one.key for one in tracebacks],
            [one.text for one in tracebacks],
        )


async def purge_tracebacks(move: Move, limit: int) -> int:
    """Remove those that no attempt refers to any more; how many."""
    return len(await move.run("purge_tracebacks", KEPT_UNUSED, limit))


async def record_artifact(move: Move, lease: Lease, reference: str, name: str | None, size: int) -> None:
    if not await move.run("record_artifact", *lease, reference, name, size):
        raise LeaseLost(*lease)


async def artifacts_due(
    move: Move, task: str | None, keep: Retention, limit: int, but: Collection[str]
) -> list[Artifact]:
    rows = await move.run("artifacts_due", keep.results, keep.jobs, task, limit, list(but))
    return [artifact(row, _moment) for row in rows]


async def forget_artifacts(move: Move, artifacts: Sequence[Artifact]) -> None:
    await move.connection.execute(
        "DELETE FROM holdfast.artifact a USING unnest($1::uuid[], $2::bigint[], $3::text[]) AS g(id, epoch, reference)"
        " WHERE a.job_id = g.id AND a.epoch = g.epoch AND a.reference = g.reference",
        [kept.job_id for kept in artifacts],
        [kept.epoch for kept in artifacts],
        [kept.reference for kept in artifacts],
    )


def _moment(value: datetime) -> datetime:
    return value

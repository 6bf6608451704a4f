"""What is stored of attempts beside their results: log lines, tracebacks, and records of artifacts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.errors import LeaseLost
from holdfast.jobs.job import Artifact, Lease, Settlement
from holdfast.jobs.retention import Retention
from holdfast.jobs.tracebacks import Traceback
from holdfast.stores.encoding import to_json, value_of
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import span
from holdfast.stores.tracebacks import KEPT_UNUSED


def keep_logs(move: Move, settlements: Sequence[Settlement]) -> None:
    """Store the log lines of *settlements*. An attempt keeps the lines that were stored first."""
    move.connection.executemany(
        "INSERT INTO holdfast_attempt_log (job, epoch, lines) SELECT id, ?, ? FROM holdfast_job WHERE uid = ?"
        " ON CONFLICT DO NOTHING",
        [(s.lease.epoch, to_json(s.logs), s.lease.job_id) for s in settlements],
    )


def keep_tracebacks(move: Move, tracebacks: Sequence[Traceback]) -> None:
    """Store *tracebacks*, and record that those which are stored already are in use."""
    move.connection.execute(
        "INSERT INTO holdfast_traceback (key, text, at) SELECT value ->> 0, value ->> 1, ? FROM json_each(?) WHERE true"
        " ON CONFLICT DO UPDATE SET at = excluded.at",
        (move.now, to_json([(one.key, one.text) for one in tracebacks])),
    )


def purge_tracebacks(move: Move, limit: int) -> int:
    """Remove up to *limit* tracebacks to which no attempt refers any more, and return how many were removed."""
    return move.run("purge_tracebacks", before=move.now - span(KEPT_UNUSED), limit=limit).rowcount


def record_artifact(move: Move, lease: Lease, reference: str, name: str | None, size: int) -> None:
    noted = move.run(
        "record_artifact",
        uid=lease.job_id,
        epoch=lease.epoch,
        reference=reference,
        called=name,
        bytes=size,
        now=move.now,
    )
    if not noted.rowcount:
        raise LeaseLost(*lease)


def artifacts_due(
    move: Move, task: str | None, keep: Retention, limit: int, but: Collection[str]
) -> list[Artifact]:
    rows = move.run(
        "artifacts_due",
        task=task,
        but=to_json(list(but)),
        results=None if keep.results is None else move.now - span(keep.results),
        jobs=None if keep.jobs is None else move.now - span(keep.jobs),
        limit=limit,
    )
    return [value_of(Artifact, row) for row in rows]


def forget_artifacts(move: Move, artifacts: Sequence[Artifact]) -> None:
    move.connection.executemany(
        "DELETE FROM holdfast_artifact WHERE job = (SELECT id FROM holdfast_job WHERE uid = ?) AND epoch = ? AND reference = ?",
        [(kept.job_id, kept.epoch, kept.reference) for kept in artifacts],
    )

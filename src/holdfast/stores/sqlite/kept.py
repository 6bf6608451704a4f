"""What is kept of attempts beside their results: what was said during them, and what they have put outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.domain.job import Artefact, Lease, Settlement
from holdfast.engine.ports import Retention
from holdfast.errors import LeaseLost
from holdfast.stores.shapes import artefact, to_json
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import moment, span


def keep_logs(move: Move, settlements: Sequence[Settlement]) -> None:
    """Of those that have any. Sent again, or by a worker that was replaced, they are still only of their own attempt."""
    said = [(s.lease.epoch, to_json(s.logs), s.lease.job_id) for s in settlements if s.logs]
    if said:
        move.connection.executemany(
            "INSERT INTO holdfast_attempt_log (job, epoch, lines) SELECT id, ?, ? FROM holdfast_job WHERE uid = ?"
            " ON CONFLICT DO NOTHING",
            said,
        )


def record_artefact(move: Move, lease: Lease, reference: str, name: str | None, size: int) -> None:
    noted = move.run(
        "record_artefact",
        uid=lease.job_id,
        epoch=lease.epoch,
        reference=reference,
        called=name,
        bytes=size,
        now=move.now,
    )
    if not noted.rowcount:
        raise LeaseLost(*lease)


def artefacts_due(
    move: Move, task: str | None, keep: Retention, limit: int, but: Collection[str]
) -> list[Artefact]:
    rows = move.run(
        "artefacts_due",
        task=task,
        but=to_json(list(but)),
        results=None if keep.results is None else move.now - span(keep.results),
        jobs=None if keep.jobs is None else move.now - span(keep.jobs),
        limit=limit,
    )
    return [artefact(row, moment) for row in rows]


def forget_artefacts(move: Move, artefacts: Sequence[Artefact]) -> None:
    move.connection.executemany(
        "DELETE FROM holdfast_artefact WHERE job = (SELECT id FROM holdfast_job WHERE uid = ?) AND epoch = ? AND reference = ?",
        [(kept.job_id, kept.epoch, kept.reference) for kept in artefacts],
    )

"""Operations: one row each. A worker takes an operation for a while, under an epoch that only grows."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.operation import Operation, Progress
from holdfast.stores.api_encoding import operation as shaped
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import moment, span


def begin_operation(move: Move, operation: Operation) -> Operation:
    move.run(
        "begin_operation",
        id=operation.id,
        action=operation.action,
        conditions=to_json(operation.filter),
        by=operation.by,
        options=to_json(operation.options),
        rate=operation.rate,
        owner=operation.owner,
        progress=operation.progress,
        matched=operation.matched,
        now=move.now,
    )
    begun = operation_of(move, operation.id)
    assert begun is not None
    return begun


def operation_of(move: Move, operation_id: str) -> Operation | None:
    return next(iter(_operations(move, "WHERE id = ?", operation_id)), None)


def operations(move: Move, limit: int) -> list[Operation]:
    return _operations(move, "ORDER BY number DESC LIMIT ?", limit)


def _operations(move: Move, clause: str, *parameters: object) -> list[Operation]:
    return [
        shaped(row, moment) for row in move.rows(f"SELECT * FROM holdfast_operation {clause}", *parameters)
    ]


def is_waiting(move: Move) -> bool:
    """Whether there is one to be taken: most of the time there is none, and looking costs no write."""
    return bool(_operations(move, "WHERE progress = 'running' AND taken_until <= ? LIMIT 1", move.now))


def take_operation(move: Move, length: timedelta) -> Operation | None:
    rows = move.run("take_operation", now=move.now, until=move.now + span(length)).fetchall()
    return operation_of(move, rows[0][0]) if rows else None


def advance_operation(
    move: Move, operation: Operation, cursor: str | None, done: int, refused: int, length: timedelta
) -> bool:
    return move.run(
        "advance_operation",
        id=operation.id,
        epoch=operation.epoch,
        cursor=cursor,
        done=done,
        refused=refused,
        now=move.now,
        until=move.now + span(length),
    ).rowcount == 1  # fmt: skip


def end_operation(move: Move, operation_id: str, progress: Progress, error: str | None) -> bool:
    return move.connection.execute(
        "UPDATE holdfast_operation SET progress = ?, error = ?, updated_at = ? WHERE id = ? AND progress = 'running'",
        (progress, error, move.now, operation_id),
    ).rowcount == 1  # fmt: skip

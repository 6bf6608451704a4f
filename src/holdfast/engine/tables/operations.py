"""The table of operations. A worker takes an operation for a span, under an epoch that only grows."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.engine.operation import BatchAction, Operation, OperationState, Progress
from holdfast.engine.ports import Row, Transaction
from holdfast.engine.tables.sql import Transacts, fetch, from_json, moment, read, to_json, write
from holdfast.jobs.moves import Kind

#: How long an operation is kept after it ended.
KEPT_FOR = timedelta(days=30)

_ADD = """INSERT INTO holdfast.operation (id, action, conditions, by, options, rate, owner, progress, matched, done, refused,
                                epoch, created_at, updated_at)
SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::float8, $7::text, $8::text, $9::bigint, 0, 0, 0, t.now, t.now
  FROM (SELECT holdfast.clock() AS now) AS t WHERE true
    ON CONFLICT (id) DO NOTHING
RETURNING *"""
_GET = "SELECT * FROM holdfast.operation WHERE id = $1::text"
_IS_FREE = "progress = 'running' AND taken_until <= (SELECT holdfast.clock())"
_TAKE = f"""UPDATE holdfast.operation
   SET epoch = epoch + 1, taken_until = holdfast.clock() + $1::interval, updated_at = holdfast.clock()
 WHERE number = (SELECT number FROM holdfast.operation WHERE {_IS_FREE} ORDER BY updated_at, number LIMIT 1
                    FOR UPDATE SKIP LOCKED)
RETURNING *"""
# Totals, and not what is added to them, so that a call whose answer was lost may be sent again. The epoch is the fence.
_ADVANCE = """UPDATE holdfast.operation
   SET cursor = $3::text, done = $4::bigint, refused = $5::bigint, state = $6::text,
       taken_until = holdfast.clock() + $7::interval, updated_at = holdfast.clock()
 WHERE id = $1::text AND epoch = $2::bigint AND progress = 'running'
RETURNING *"""
_END = """UPDATE holdfast.operation SET progress = $2::text, error = $3::text, updated_at = holdfast.clock()
 WHERE id = $1::text AND progress = 'running'
RETURNING *"""
_FORGETTABLE = """SELECT number FROM holdfast.operation
 WHERE progress <> 'running' AND updated_at <= (SELECT holdfast.clock()) - $1::interval LIMIT $2::int"""


async def add(store: Transacts, operation: Operation) -> Operation:
    """Store an operation and return it with the store's moments. One whose id is known is returned as it is."""
    values = (
        operation.id, str(operation.action), to_json(operation.filter), operation.by, to_json(operation.options),
        operation.rate, operation.owner, str(operation.progress), operation.matched,
    )  # fmt: skip

    async def add(transaction: Transaction) -> Operation:
        rows = await fetch(transaction, _ADD, *values)
        if not rows:
            [known] = await fetch(transaction, _GET, operation.id)
            return _operation(known)
        facts = {"operation": operation.id, "action": str(operation.action), "matched": operation.matched}
        await transaction.record(Kind.operation_began, facts | {"by": operation.by})
        return _operation(rows[0])

    return await store.transact(add)


async def get(store: Transacts, operation_id: str) -> Operation | None:
    """Return the operation of this id."""
    rows = await read(store, _GET, operation_id)
    return _operation(rows[0]) if rows else None


async def newest(store: Transacts, limit: int) -> list[Operation]:
    """Return up to *limit* operations, newest first."""
    rows = await read(store, "SELECT * FROM holdfast.operation ORDER BY number DESC LIMIT $1::int", limit)
    return [_operation(row) for row in rows]


async def take(store: Transacts, span: timedelta) -> Operation | None:
    """Take the running operation that no process works on and that has waited longest, for *span* and under a new epoch."""
    # Often there is none, and this query takes no lock.
    if not await read(store, f"SELECT 1 FROM holdfast.operation WHERE {_IS_FREE} LIMIT 1"):
        return None
    rows = await write(store, _TAKE, span)
    return _operation(rows[0]) if rows else None


async def advance(store: Transacts, operation: Operation, span: timedelta) -> Operation | None:
    """Record what an operation has become: its cursor, its totals and its state.

    Args:
        store: The store.
        operation: The operation as `take` or the call before has returned it, with its new values.
        span: For how long the operation stays taken; none: the next process may take it.

    Returns:
        The operation as it is now. None, and nothing is changed, when it has ended or another process has taken it since.
    """
    rows = await write(
        store, _ADVANCE, operation.id, operation.epoch, operation.cursor, operation.done, operation.refused,
        to_json(operation.state), span,
    )  # fmt: skip
    return _operation(rows[0]) if rows else None


async def end(
    store: Transacts,
    operation_id: str,
    progress: Progress,
    *,
    error: str | None = None,
    by: str | None = None,
) -> bool:
    """End an operation as done, stopped, failed or cancelled. Return False when it was not running.

    The event records *by*, the person who ended it, if a person did.
    """

    async def end(transaction: Transaction) -> bool:
        for row in await fetch(transaction, _END, operation_id, str(progress), error):
            ended = _operation(row)
            facts = {"operation": ended.id, "action": str(ended.action), "progress": str(progress)}
            totals = {"done": ended.done, "refused": ended.refused, "reason": error, "by": by}
            await transaction.record(Kind.operation_ended, facts | totals)
            return True
        return False

    return await store.transact(end)


async def forget(store: Transacts, limit: int) -> int:
    """Delete up to *limit* operations that ended `KEPT_FOR` ago, and return how many."""
    if not await read(store, _FORGETTABLE, KEPT_FOR, 1):
        return 0
    sql = f"DELETE FROM holdfast.operation WHERE number IN ({_FORGETTABLE} FOR UPDATE SKIP LOCKED) RETURNING number"
    return len(await write(store, sql, KEPT_FOR, limit))


_read_state = msgspec.json.Decoder(OperationState).decode


def _operation(row: Row) -> Operation:
    return Operation(
        id=row["id"],
        action=BatchAction(row["action"]),
        filter=from_json(row["conditions"]),
        by=row["by"],
        options=from_json(row["options"]),
        rate=row["rate"],
        owner=row["owner"],
        progress=Progress(row["progress"]),
        matched=row["matched"],
        done=row["done"],
        refused=row["refused"],
        cursor=row["cursor"],
        state=_read_state(row["state"]),
        epoch=row["epoch"],
        error=row["error"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
    )

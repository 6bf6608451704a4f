"""Operations: one row each. A worker takes an operation for a while, under an epoch that only grows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.operation import Operation, Progress
from holdfast.stores.api_encoding import operation as shaped
from holdfast.stores.encoding import to_json
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.times import moment


async def begin_operation(connection: asyncpg.Connection[Any], operation: Operation) -> Operation:
    await connection.fetch(
        SQL["begin_operation"],
        operation.id,
        str(operation.action),
        to_json(operation.filter),
        operation.by,
        to_json(operation.options),
        operation.rate,
        operation.owner,
        str(operation.progress),
        operation.matched,
    )
    begun = await operation_of(connection, operation.id)
    assert begun is not None
    return begun


async def operation_of(connection: asyncpg.Connection[Any], operation_id: str) -> Operation | None:
    row = await connection.fetchrow("SELECT * FROM holdfast.operation WHERE id = $1::text", operation_id)
    return None if row is None else shaped(row, moment)


async def operations(connection: asyncpg.Connection[Any], limit: int) -> list[Operation]:
    rows = await connection.fetch("SELECT * FROM holdfast.operation ORDER BY number DESC LIMIT $1", limit)
    return [shaped(row, moment) for row in rows]


async def take_operation(connection: asyncpg.Connection[Any], span: timedelta) -> Operation | None:
    rows = await connection.fetch(SQL["take_operation"], span)
    return shaped(rows[0], moment) if rows else None


async def advance_operation(
    connection: asyncpg.Connection[Any],
    operation: Operation,
    cursor: str | None,
    done: int,
    refused: int,
    span: timedelta,
) -> bool:
    told = operation.id, operation.epoch, cursor, done, refused, span
    return bool(await connection.fetch(SQL["advance_operation"], *told))


async def end_operation(
    connection: asyncpg.Connection[Any], operation_id: str, progress: Progress, error: str | None
) -> bool:
    sql = """UPDATE holdfast.operation SET progress = $2::text, error = $3::text, updated_at = holdfast.clock()
              WHERE id = $1::text AND progress = 'running' RETURNING id"""
    return await connection.fetchval(sql, operation_id, str(progress), error) is not None

"""Webhooks, and how far readers of events have come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.webhook import Webhook
from holdfast.stores.api_encoding import webhook as shaped
from holdfast.stores.api_encoding import webhook_columns
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.times import moment


async def put_webhook(connection: asyncpg.Connection[Any], webhook: Webhook) -> Webhook:
    columns = webhook_columns(webhook).values()
    [row] = await connection.fetch(SQL["put_webhook"], *columns, webhook.failing_since, webhook.disabled_at)
    return shaped(row, moment)


async def webhooks(connection: asyncpg.Connection[Any]) -> list[Webhook]:
    rows = await connection.fetch("SELECT * FROM holdfast.webhook ORDER BY number")
    return [shaped(row, moment) for row in rows]


async def remove_webhook(connection: asyncpg.Connection[Any], webhook_id: str) -> bool:
    sql = "DELETE FROM holdfast.webhook WHERE id = $1::text RETURNING id"
    return await connection.fetchval(sql, webhook_id) is not None


async def webhook_answered(
    connection: asyncpg.Connection[Any], webhook_id: str, well: bool, disable_after: timedelta
) -> Webhook | None:
    async with connection.transaction():
        row = await connection.fetchrow(
            "SELECT *, holdfast.clock() AS now FROM holdfast.webhook WHERE id = $1::text FOR UPDATE",
            webhook_id,
        )
        if row is None:
            return None
        webhook = shaped(row, moment)
        told = webhook.answered(well=well, now=row["now"], disable_after=disable_after)
        return webhook if told == webhook else await put_webhook(connection, told)


async def bookmark(connection: asyncpg.Connection[Any], name: str) -> int | None:
    found: str | None = await connection.fetchval(
        "SELECT event FROM holdfast.bookmark WHERE name = $1::text", name
    )
    return None if found is None else int(found)


async def move_bookmark(connection: asyncpg.Connection[Any], name: str, before: int | None, to: int) -> bool:
    if before is None:
        sql = "INSERT INTO holdfast.bookmark (name, event) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING RETURNING name"
        return await connection.fetchval(sql, name, str(to)) is not None
    sql = "UPDATE holdfast.bookmark SET event = $2::text WHERE name = $1::text AND event = $3::text RETURNING name"
    return await connection.fetchval(sql, name, str(to), str(before)) is not None

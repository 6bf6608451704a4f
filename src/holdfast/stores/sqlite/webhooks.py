"""Webhooks, and how far readers of events have come."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.webhook import Webhook
from holdfast.stores.api_encoding import webhook as shaped
from holdfast.stores.api_encoding import webhook_columns
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import micros, moment


def put_webhook(move: Move, webhook: Webhook) -> Webhook:
    since, disabled = (
        None if at is None else micros(at) for at in (webhook.failing_since, webhook.disabled_at)
    )
    move.run(
        "put_webhook", **webhook_columns(webhook), failing_since=since, disabled_at=disabled, now=move.now
    )
    [put] = _webhooks(move, "WHERE id = ?", webhook.id)
    return put


def webhooks(move: Move) -> list[Webhook]:
    return _webhooks(move, "ORDER BY number")


def _webhooks(move: Move, clause: str, *parameters: object) -> list[Webhook]:
    return [shaped(row, moment) for row in move.rows(f"SELECT * FROM holdfast_webhook {clause}", *parameters)]


def remove_webhook(move: Move, webhook_id: str) -> bool:
    return move.connection.execute("DELETE FROM holdfast_webhook WHERE id = ?", (webhook_id,)).rowcount == 1


def webhook_answered(move: Move, webhook_id: str, well: bool, disable_after: timedelta) -> Webhook | None:
    for webhook in _webhooks(move, "WHERE id = ?", webhook_id):
        told = webhook.answered(well=well, now=moment(move.now), disable_after=disable_after)
        return webhook if told == webhook else put_webhook(move, told)
    return None


def bookmark(move: Move, name: str) -> int | None:
    rows = move.rows("SELECT event FROM holdfast_bookmark WHERE name = ?", name)
    return rows[0][0] if rows else None


def move_bookmark(move: Move, name: str, before: int | None, to: int) -> bool:
    if before is None:
        sql = "INSERT INTO holdfast_bookmark (event, name) VALUES (?, ?) ON CONFLICT DO NOTHING"
        return move.connection.execute(sql, (to, name)).rowcount == 1
    sql = "UPDATE holdfast_bookmark SET event = ? WHERE name = ? AND event = ?"
    return move.connection.execute(sql, (to, name, before)).rowcount == 1

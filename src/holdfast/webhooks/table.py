"""The table of webhooks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from holdfast.engine.ports import Row, Transaction
from holdfast.engine.tables.sql import Transacts, fetch, from_json, maybe_moment, moment, read, to_json, write
from holdfast.webhooks.model import Seed, Webhook

_PUT = """INSERT INTO holdfast.webhook (id, url, events, owner, secrets, inbound, description, failing_since, disabled_at,
                              disabled_reason, created_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::boolean, $7::text, $8::timestamptz, $9::timestamptz, $10::text,
        holdfast.clock())
    ON CONFLICT (id) DO UPDATE
   SET url = excluded.url, events = excluded.events, owner = excluded.owner, secrets = excluded.secrets,
       inbound = excluded.inbound, description = excluded.description, failing_since = excluded.failing_since,
       disabled_at = excluded.disabled_at, disabled_reason = excluded.disabled_reason
RETURNING *"""


async def put(store: Transacts, webhook: Webhook) -> Webhook:
    """Store a webhook, or replace the one of this id, and return it. *created_at* is the store's, and stays."""
    [row] = await write(store, _PUT, *_values(webhook))
    return _webhook(row)


async def every(store: Transacts) -> list[Webhook]:
    """Return all webhooks, oldest first."""
    return [_webhook(row) for row in await read(store, "SELECT * FROM holdfast.webhook ORDER BY number")]


async def remove(store: Transacts, webhook_id: str) -> bool:
    """Delete a webhook and return whether there was one."""
    return bool(
        await write(store, "DELETE FROM holdfast.webhook WHERE id = $1::text RETURNING id", webhook_id)
    )


async def record_answer(
    store: Transacts, webhook_id: str, *, well: bool, disable_after: timedelta
) -> Webhook | None:
    """Record how a delivery went and return the webhook (None: there is none of this id).

    The first failure since a success sets *failing_since*. Failing for *disable_after* disables the webhook.
    """

    async def work(transaction: Transaction) -> Webhook | None:
        sql = "SELECT * FROM holdfast.webhook WHERE id = $1::text FOR UPDATE"
        for row in await fetch(transaction, sql, webhook_id):
            webhook, now = _webhook(row), await transaction.now()
            changed = webhook.answered(well=well, now=now, disable_after=disable_after)
            if changed != webhook:
                await fetch(transaction, _PUT, *_values(changed))
            return changed
        return None

    return await store.transact(work)


def _values(webhook: Webhook) -> tuple[Any, ...]:
    return (
        webhook.id,
        webhook.url,
        to_json(webhook.events),
        webhook.owner,
        to_json([_stored_seed(seed) for seed in webhook.seeds]),
        webhook.inbound,
        webhook.description,
        webhook.failing_since,
        webhook.disabled_at,
        webhook.disabled_reason,
    )


def _webhook(row: Row) -> Webhook:
    return Webhook(
        id=row["id"],
        url=row["url"],
        events=tuple(from_json(row["events"])),
        owner=row["owner"],
        seeds=tuple(_seed(stored) for stored in from_json(row["secrets"])),
        inbound=bool(row["inbound"]),
        description=row["description"],
        created_at=moment(row["created_at"]),
        failing_since=maybe_moment(row["failing_since"]),
        disabled_at=maybe_moment(row["disabled_at"]),
        disabled_reason=row["disabled_reason"],
    )


def _seed(stored: Any) -> Seed:
    if isinstance(stored, str):  # a secret of an older version
        return Seed(stored, "")
    until = stored.get("until")
    return Seed(stored["salt"], stored["check"], None if until is None else datetime.fromisoformat(until))


def _stored_seed(seed: Seed) -> Any:
    if not seed.check:
        return seed.salt
    return {"salt": seed.salt, "check": seed.check, "until": seed.until and seed.until.isoformat()}

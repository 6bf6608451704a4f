"""Signed messages from outside that ask for a retry.

A message is done once: its id is kept in the transaction that stores the job which does it, for longer than a signature is
valid. Sent again, it does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Literal

import msgspec

from holdfast.domain.job import JobId
from holdfast.domain.moves import State
from holdfast.domain.webhook import Webhook
from holdfast.engine.api_store import NamedRequest, Repeated
from holdfast.engine.engine import Engine
from holdfast.engine.permissions import must_be_open, must_not_be_internal
from holdfast.errors import Conflict, PayloadError, UnknownJob
from holdfast.logs import Log
from holdfast.webhooks.delivery import find, retrial
from holdfast.webhooks.secrets import UnknownSecret, revealed
from holdfast.webhooks.selection import delivery_id
from holdfast.webhooks.signature import TOLERANCE, verify, write_secret

log = Log("holdfast.webhooks")

#: A signature may be as far ahead of our clock as behind it.
KEEP = TOLERANCE * 2 + timedelta(minutes=5)
LONGEST_BODY = 10_000


class NotYours(Conflict):
    """The job is of another owner than the webhook."""


class RetryMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a message asks for."""

    action: Literal["retry"]
    job: str


async def receive(engine: Engine, webhook_id: str, headers: Mapping[str, str], body: bytes) -> JobId:
    webhook = await find(engine, webhook_id)
    message = verify(_secrets(engine, webhook), headers, body, now=engine.clock.now())
    assert webhook is not None  # else no signature fits
    wish = _read(body)
    target = JobId(wish.job)
    row = await engine.store.job(target)
    if row is None:
        raise UnknownJob(wish.job[:60])
    if webhook.owner is not None and row.owner != webhook.owner:
        raise NotYours(f"job {row.id} belongs to another owner")
    must_not_be_internal(row.task)
    if webhook.owner is not None:
        must_be_open(engine, row.task)
    engine.check_again(row)
    request = NamedRequest(scope=f"inbound {webhook.id}", name=message, fingerprint=sha256(body).digest())
    job = retrial(webhook, row.id, delivery_id(f"{webhook.id} {message}", await engine.store.now()))
    if row.state is State.COMPLETE:
        raise Conflict(f"job {row.id} is complete; there is nothing to retry")
    answer = await engine.enqueue_once(request, [job], keep=KEEP)
    if isinstance(answer, Repeated) and answer.fingerprint != request.fingerprint:
        raise PayloadError(
            "a message of this webhook-id had another content; give every message an id of its own"
        )
    return row.id


def _secrets(engine: Engine, webhook: Webhook | None) -> tuple[str, ...]:
    """Return what a message may be signed with. For an unknown webhook that is a secret which fits nothing, so that its
    messages are refused in the same words, after the same work, as wrongly signed ones."""
    if webhook is None or not webhook.inbound or not webhook.is_enabled:
        return (write_secret(engine.ids.secret()),)
    try:
        return revealed(webhook, engine.secret_keys()).secrets
    except UnknownSecret as error:
        log.error("webhook.secret_unknown", webhook=webhook.id, reason=str(error))
        return (write_secret(engine.ids.secret()),)


def _read(body: bytes) -> RetryMessage:
    if len(body) > LONGEST_BODY:
        raise PayloadError(f"the message is longer than {LONGEST_BODY:,} bytes")
    try:
        return msgspec.json.decode(body, type=RetryMessage)
    except (msgspec.DecodeError, RecursionError):
        raise PayloadError('the message must be {"action": "retry", "job": "<id>"}') from None

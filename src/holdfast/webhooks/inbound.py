"""Inbound webhooks: signed messages from outside that ask for a retry.

A message takes effect once: the transaction that enqueues its job also stores its id, for longer than a
signature is valid. The same message sent again does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Literal

import msgspec

from holdfast.engine.engine import Engine
from holdfast.engine.manual_retry import check_again
from holdfast.engine.named_request import NamedRequest, Repeated
from holdfast.engine.permissions import must_be_open, must_not_be_internal
from holdfast.errors import Conflict, PayloadError, UnknownJob
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import State
from holdfast.logging import Log
from holdfast.webhooks.delivery import find, retry_job
from holdfast.webhooks.model import Webhook
from holdfast.webhooks.secrets import UnknownSecret, with_secrets
from holdfast.webhooks.selection import delivery_id
from holdfast.webhooks.signature import TOLERANCE, verify, write_secret

log = Log("holdfast.webhooks")

#: How long the id of a message is kept. A signature may be as far ahead of the local clock as behind it.
KEEP = TOLERANCE * 2 + timedelta(minutes=5)
LONGEST_BODY = 10_000


class WrongOwner(Conflict):
    """The job belongs to another owner than the webhook."""


class RetryMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an inbound message."""

    action: Literal["retry"]
    job: str


async def receive(engine: Engine, webhook_id: str, headers: Mapping[str, str], body: bytes) -> JobId:
    """Verify a message, enqueue the retry that it asks for, and return the id of the job to be retried.

    Raises:
        BadSignature: The message is not signed with a secret of this webhook, or there is no such webhook.
        PayloadError: The body is not valid, or an earlier message with this id had a different body.
        UnknownJob: The job does not exist.
        WrongOwner: The job belongs to another owner.
        Conflict: The job is complete.
    """
    webhook = await find(engine, webhook_id)
    message = verify(_secrets(engine, webhook), headers, body, now=engine.clock.now())
    assert webhook is not None  # else no signature fits
    request_body = _read(body)
    target = JobId(request_body.job)
    row = await engine.store.queries.job(target)
    if row is None:
        raise UnknownJob(request_body.job[:60])
    if webhook.owner is not None and row.owner != webhook.owner:
        raise WrongOwner(f"job {row.id} belongs to another owner")
    must_not_be_internal(row.task)
    if webhook.owner is not None:
        must_be_open(engine, row.task)
    await check_again(engine, row.id)
    request = NamedRequest(scope=f"inbound {webhook.id}", name=message, fingerprint=sha256(body).digest())
    job = retry_job(webhook, row.id, delivery_id(f"{webhook.id} {message}", await engine.store.now()))
    if row.state is State.COMPLETE:
        raise Conflict(f"job {row.id} is complete; there is nothing to retry")
    answer = await engine.enqueue_once(request, [job], keep=KEEP)
    if isinstance(answer, Repeated) and answer.fingerprint != request.fingerprint:
        raise PayloadError(
            "an earlier message with this webhook-id had a different body; give every message its own id"
        )
    return row.id


def _secrets(engine: Engine, webhook: Webhook | None) -> tuple[str, ...]:
    """Return the secrets with which a message may be signed.

    For an unknown webhook this is a random one, so that its messages are refused with the same error, after
    the same work, as wrongly signed ones.
    """
    if webhook is None or not webhook.inbound or not webhook.is_enabled:
        return (write_secret(engine.ids.secret()),)
    try:
        return with_secrets(webhook, engine.secret_keys()).secrets
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

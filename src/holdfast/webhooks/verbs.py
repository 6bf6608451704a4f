"""`app.webhooks`: create, change, test and replay webhooks, and receive signed messages."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b

from holdfast.engine.cloudevent import of_test
from holdfast.engine.engine import Engine
from holdfast.engine.events import LARGEST_EVENT
from holdfast.engine.namespace import Namespace
from holdfast.engine.operation import Operation
from holdfast.engine.tables import bookmarks
from holdfast.errors import Conflict, UnknownWebhook, UsageError
from holdfast.jobs.job import JobId, JobRow
from holdfast.values.validation import word
from holdfast.webhooks import table as webhook_table
from holdfast.webhooks.delivery import delivery, find, tested_webhook
from holdfast.webhooks.envelope import encode_envelope
from holdfast.webhooks.fanout import BOOKMARK
from holdfast.webhooks.inbound import receive
from holdfast.webhooks.model import Webhook
from holdfast.webhooks.replay import begin_replay
from holdfast.webhooks.secrets import make_seed, with_known_seeds, with_secrets, without_expired_seeds
from holdfast.webhooks.selection import delivery_id, is_only_outbound, read_events

#: The most webhooks of one owner and in all: each event is checked against every webhook.
MOST_PER_OWNER, MOST = 20, 1000
_LONGEST_DESCRIPTION = 500
_MARK_BYTES = 8
#: How long the old secret of a webhook stays valid after a rotation.
KEEP_OLD_SECRET = timedelta(hours=24)


class Webhooks(Namespace):
    """URLs that receive signed messages about events, and inbound webhooks that accept retry requests."""

    async def create(
        self,
        url: str,
        *,
        events: str | Collection[str] = (),
        owner: str | None = None,
        description: str = "",
        token: str | None = None,
    ) -> Webhook:
        """Send events to *url* from now on. The returned webhook has the signing secret in `secrets`.

        Args:
            url: Where messages are sent.
            events: Which kinds of events; "*" for all. By default the ends of jobs.
            owner: Only events about jobs of this owner.
            description: For people.
            token: An id that names this call, here and below. Repeated under it, a call has no second effect.

        Raises:
            TargetNotAllowed: The URL leads to an address that must not be called.
            Conflict: There are as many webhooks as there may be.
        """
        engine = await self._engine()
        kinds = read_events(events)
        await engine.outbound.check_address(url)
        put = await _put(
            engine, token, url=url, events=kinds, owner=owner, description=description, inbound=False
        )
        await _begin_now(engine, put)
        return put

    async def create_inbound(
        self, *, owner: str | None = None, description: str = "", token: str | None = None
    ) -> Webhook:
        """Create an inbound webhook: messages signed with its secret may ask for retries of jobs of *owner*.

        Without an *owner* they may ask for retries of all jobs.
        """
        engine = await self._engine()
        return await _put(
            engine, token, url="", events=(), owner=owner, description=description, inbound=True
        )

    async def list(self) -> builtins.list[Webhook]:
        """Return all webhooks, oldest first, without their secrets."""
        engine = await self._engine()
        return [
            without_expired_seeds(webhook, engine.clock.now())
            for webhook in await webhook_table.every(engine.store)
        ]

    async def get(self, webhook_id: str) -> Webhook:
        """Return the webhook, without its secrets. Raises `UnknownWebhook` when there is none."""
        return await _known(await self._engine(), webhook_id)

    async def rotate_secret(
        self, webhook_id: str, *, keep_old: bool = True, token: str | None = None
    ) -> Webhook:
        """Make a new secret, which is the first of the returned `secrets`.

        For 24 hours messages are signed with both secrets, and inbound ones may be signed with either.
        Without *keep_old* only the new secret is valid.
        """
        engine = await self._engine()
        webhook, keys = await _known(engine, webhook_id), engine.secret_keys()
        # The seed ends with a mark of the call that made it: if one call rotated twice, the secret in use
        # would be lost.
        mark = b"" if token is None else blake2b(token.encode(), digest_size=_MARK_BYTES).digest()
        if mark and webhook.seeds[0].salt.endswith(mark.hex()):
            return with_secrets(webhook, keys)
        until = await engine.store.now() + KEEP_OLD_SECRET
        kept = (
            [replace(seed, until=until) for seed in with_known_seeds(webhook, keys).seeds[:1]]
            if keep_old
            else []
        )
        seeds = (make_seed(webhook.id, engine.ids.secret() + mark, keys), *kept)
        return with_secrets(await webhook_table.put(engine.store, replace(webhook, seeds=seeds)), keys)

    async def retire_secret(self, webhook_id: str) -> Webhook:
        """End a rotation: only the newest secret stays valid."""
        engine = await self._engine()
        webhook = await _known(engine, webhook_id)
        newest = with_secrets(replace(webhook, seeds=webhook.seeds[:1]), engine.secret_keys())
        return replace(await webhook_table.put(engine.store, newest), secrets=newest.secrets)

    async def enable(self, webhook_id: str) -> Webhook:
        """Send events to a disabled webhook again, from now on. `replay` sends what it missed."""
        engine = await self._engine()
        webhook = await _known(engine, webhook_id)
        cleared = replace(webhook, failing_since=None, disabled_at=None, disabled_reason=None)
        put = await webhook_table.put(engine.store, cleared)
        if not webhook.is_enabled:
            await _begin_now(engine, put)
        return put

    async def disable(self, webhook_id: str, *, reason: str = "by a person") -> Webhook:
        """Send nothing until the webhook is enabled again. Messages that wait are dropped."""
        engine = await self._engine()
        webhook = await _known(engine, webhook_id)
        if not webhook.is_enabled:
            return webhook
        disabled = replace(webhook, disabled_at=await engine.store.now(), disabled_reason=reason[:200])
        return await webhook_table.put(engine.store, disabled)

    async def remove(self, webhook_id: str) -> None:
        """Delete the webhook. Messages that wait are dropped. Raises `UnknownWebhook` when there is none."""
        if not await webhook_table.remove((await self._engine()).store, webhook_id):
            raise UnknownWebhook(webhook_id)

    async def test(self, webhook_id: str, *, token: str | None = None) -> JobId:
        """Send one test message, even to a disabled webhook, and return the id of the job that sends it.

        The job's result is the HTTP status of the answer.
        """
        engine = await self._engine()
        webhook = await _outbound(engine, webhook_id)
        now, name = await engine.store.now(), token or engine.ids.job_id()
        message = f"msg_test_{name.replace('-', '')}"
        body = encode_envelope(of_test(message, now, webhook.id)).decode()
        # With a token the id is the same whenever it is computed.
        job_id = delivery_id(message, now) if token is None else JobId(token)
        job = delivery(webhook.id, message, body, job_id, test=True)
        [answer] = await engine.enqueue([job])
        return answer.id

    async def replay(
        self,
        webhook_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        by: str = "api",
        for_owner: str | None = None,
        token: str | None = None,
    ) -> Operation:
        """Send the events between *after* and *before* that the webhook wants again. Return the operation.

        Workers do it in batches, as an operation (`app.operations`), since a log may be long. Messages keep
        their ids, so that a receiver can ignore those it has seen. With *for_owner* the operation belongs to
        this owner. Raises `Conflict` if the webhook is disabled, or another replay of it runs.
        """
        engine = await self._engine()
        webhook = await _outbound(engine, webhook_id)
        if not webhook.is_enabled:
            raise Conflict(
                f"the webhook {webhook_id} is disabled: {webhook.disabled_reason}; enable it first"
            )
        if not 0 <= after <= LARGEST_EVENT or not (before is None or 0 <= before <= LARGEST_EVENT):
            raise UsageError("after and before are numbers of events")
        return await begin_replay(engine, webhook, after, before, by=by, owner=for_owner, token=token)

    async def receive(self, webhook_id: str, headers: Mapping[str, str], body: bytes) -> JobId:
        """Carry out a signed message, `{"action": "retry", "job": id}`, and return the id of the retried job.

        Only jobs of the webhook's owner can be retried. A message that was received before does nothing more.
        Raises `BadSignature` when the signature is not valid.
        """
        return await receive(await self._engine(), webhook_id, headers, body)

    async def tested_by(self, job: JobRow) -> Webhook | None:
        """Return the webhook to which *job* sends a test message, or None if it does something else."""
        return await tested_webhook(await self._engine(), job)


async def _put(
    engine: Engine,
    token: str | None,
    *,
    url: str,
    events: tuple[str, ...],
    owner: str | None,
    description: str,
    inbound: bool,
) -> Webhook:
    others = await webhook_table.every(engine.store)
    if len(others) >= MOST or (
        owner is not None and sum(other.owner == owner for other in others) >= MOST_PER_OWNER
    ):
        raise Conflict(
            f"no more webhooks can be created: at most {MOST_PER_OWNER} per owner and {MOST:,} in all; remove one"
        )
    if not isinstance(description, str) or len(description) > _LONGEST_DESCRIPTION or "\0" in description:
        raise UsageError(f"description is a text of at most {_LONGEST_DESCRIPTION} characters")
    webhook_id, keys = f"wh_{(token or engine.ids.job_id()).replace('-', '')}", engine.secret_keys()
    put = await webhook_table.put(
        engine.store,
        Webhook(
            id=webhook_id,
            url=url,
            events=events,
            owner=None if owner is None else word("owner", owner),
            seeds=(make_seed(webhook_id, engine.ids.secret(), keys),),
            inbound=inbound,
            description=description,
            created_at=await engine.store.now(),
        ),
    )
    return with_secrets(put, keys)


async def _begin_now(engine: Engine, webhook: Webhook) -> None:
    """Move the bookmark of deliveries to the end of the log: while there was no webhook, nothing moved it.

    The end of the log is read before the other webhooks are, so that a webhook that is created later gets all
    that follows.
    """
    store = engine.store
    before, newest = await bookmarks.get(store, BOOKMARK), await store.queries.newest_event()
    if is_only_outbound(webhook.id, await webhook_table.every(store)) and (before is None or before < newest):
        await bookmarks.move(store, BOOKMARK, before=before, to=newest)


async def _known(engine: Engine, webhook_id: str) -> Webhook:
    webhook = await find(engine, webhook_id)
    if webhook is None:
        raise UnknownWebhook(webhook_id)
    return webhook


async def _outbound(engine: Engine, webhook_id: str) -> Webhook:
    webhook = await _known(engine, webhook_id)
    if webhook.inbound:
        raise Conflict(f"the webhook {webhook_id} is inbound; nothing is sent to it")
    return webhook

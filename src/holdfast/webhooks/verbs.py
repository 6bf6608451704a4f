"""The verbs of webhooks, as an app offers them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b

from holdfast.domain.cloudevent import of_test
from holdfast.domain.job import JobId
from holdfast.domain.operation import Operation
from holdfast.domain.validation import word
from holdfast.domain.webhook import Webhook
from holdfast.engine.engine import Engine
from holdfast.errors import Conflict, UnknownWebhook, UsageError
from holdfast.webhooks.delivery import delivery, find
from holdfast.webhooks.envelope import written
from holdfast.webhooks.fanout import BOOKMARK
from holdfast.webhooks.inbound import receive
from holdfast.webhooks.replay import begin_replay
from holdfast.webhooks.secrets import current, known, make_seed, revealed
from holdfast.webhooks.selection import delivery_id, is_alone, read_events

#: Each event is weighed against every webhook, and sent to each that wants it.
MOST_PER_OWNER, MOST = 20, 1000
_LONGEST_DESCRIPTION = 500
_MARK_BYTES = 8
#: How long the old secret of a webhook stays valid after a rotation.
KEEP_OLD_SECRET = timedelta(hours=24)
#: No event has a larger number.
LARGEST = 2**63 * 1000


class WebhookVerbs(ABC):
    """Who is told of what happens, and who may ask for retries by signed messages."""

    @abstractmethod
    async def engine(self) -> Engine:
        """The engine of the running event loop."""

    async def create_webhook(
        self,
        url: str,
        *,
        events: str | Collection[str] = (),
        owner: str | None = None,
        description: str = "",
        token: str | None = None,
    ) -> Webhook:
        """Tell *url* of what happens from now on: the kinds of *events* (none: the ends of jobs; "*": all), of the jobs of
        *owner* (None: everybody's). Its secret is in `secrets`. `TargetNotAllowed` for a URL that must not be called.

        *token*, here and below, is an id that names the call: made again under it, it has no second effect.
        """
        engine = await self.engine()
        kinds = read_events(events)
        await engine.outbound.check_address(url)
        put = await _put(
            engine, token, url=url, events=kinds, owner=owner, description=description, inbound=False
        )
        await _begin_now(engine, put)
        return put

    async def create_inbound_webhook(
        self, *, owner: str | None = None, description: str = "", token: str | None = None
    ) -> Webhook:
        """Let others ask for retries of the jobs of *owner* (None: everybody's) by messages signed with its secret."""
        engine = await self.engine()
        return await _put(
            engine, token, url="", events=(), owner=owner, description=description, inbound=True
        )

    async def webhooks(self) -> list[Webhook]:
        """Return all webhooks, oldest first, without their secrets."""
        engine = await self.engine()
        return [current(webhook, engine.clock.now()) for webhook in await engine.store.webhooks()]

    async def webhook(self, webhook_id: str) -> Webhook:
        """`UnknownWebhook` when there is none."""
        return await _known(await self.engine(), webhook_id)

    async def rotate_webhook_secret(
        self, webhook_id: str, *, keep_old: bool = True, token: str | None = None
    ) -> Webhook:
        """Make a new secret, first in `secrets`. Messages are signed with the old one too, and inbound ones may be, for
        24 hours; without *keep_old* only the new one is valid."""
        engine = await self.engine()
        webhook, keys = await _known(engine, webhook_id), engine.secret_keys()
        # Behind the random bytes stands by whose call it was made: rotated twice by one call, the secret in use would be lost.
        mark = b"" if token is None else blake2b(token.encode(), digest_size=_MARK_BYTES).digest()
        if mark and webhook.seeds[0].salt.endswith(mark.hex()):
            return revealed(webhook, keys)
        until = await engine.store.now() + KEEP_OLD_SECRET
        kept = [replace(seed, until=until) for seed in known(webhook, keys).seeds[:1]] if keep_old else []
        seeds = (make_seed(webhook.id, engine.ids.secret() + mark, keys), *kept)
        return revealed(await engine.store.put_webhook(replace(webhook, seeds=seeds)), keys)

    async def retire_webhook_secret(self, webhook_id: str) -> Webhook:
        """End a rotation: only the newest secret stays valid."""
        engine = await self.engine()
        webhook = await _known(engine, webhook_id)
        newest = revealed(replace(webhook, seeds=webhook.seeds[:1]), engine.secret_keys())
        return replace(await engine.store.put_webhook(newest), secrets=newest.secrets)

    async def enable_webhook(self, webhook_id: str) -> Webhook:
        """Begin anew after it was disabled: it is told of what happens from now on (`replay_webhook` tells the rest)."""
        engine = await self.engine()
        webhook = await _known(engine, webhook_id)
        cleared = replace(webhook, failing_since=None, disabled_at=None, disabled_reason=None)
        put = await engine.store.put_webhook(cleared)
        if not webhook.is_enabled:
            await _begin_now(engine, put)
        return put

    async def disable_webhook(self, webhook_id: str, *, reason: str = "by a person") -> Webhook:
        """Send it nothing more until it is enabled; what waits to be sent is not."""
        engine = await self.engine()
        webhook = await _known(engine, webhook_id)
        if not webhook.is_enabled:
            return webhook
        told = replace(webhook, disabled_at=await engine.store.now(), disabled_reason=reason[:200])
        return await engine.store.put_webhook(told)

    async def remove_webhook(self, webhook_id: str) -> None:
        """What waits to be sent to it is not."""
        if not await (await self.engine()).store.remove_webhook(webhook_id):
            raise UnknownWebhook(webhook_id)

    async def test_webhook(self, webhook_id: str, *, token: str | None = None) -> JobId:
        """Send it a message about nothing, once, even when it is disabled; the job that does, whose result is the status."""
        engine = await self.engine()
        webhook = await _outbound(engine, webhook_id)
        now, name = await engine.store.now(), token or engine.ids.job_id()
        message = f"msg_test_{name.replace('-', '')}"
        body = written(of_test(message, now, webhook.id)).decode()
        job_id = delivery_id(message, now) if token is None else JobId(token)  # the same at whatever time
        job = delivery(webhook.id, message, body, job_id, test=True)
        [answer] = await engine.enqueue([job])
        return answer.id

    async def replay_webhook(
        self,
        webhook_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        by: str = "api",
        for_owner: str | None = None,
        token: str | None = None,
    ) -> Operation:
        """Begin to send the events after *after* and before *before* again, those that the webhook wants.

        Workers do it in batches, as an operation (`app.operation`), since a log may be long. Messages keep their ids, so
        that a receiver can ignore what it has seen. *for_owner*: the operation belongs to this owner. Raises `Conflict`
        while the webhook is disabled, or while another replay of it runs.
        """
        engine = await self.engine()
        webhook = await _outbound(engine, webhook_id)
        if not webhook.is_enabled:
            raise Conflict(
                f"the webhook {webhook_id} is disabled: {webhook.disabled_reason}; enable it first"
            )
        if not 0 <= after <= LARGEST or not (before is None or 0 <= before <= LARGEST):
            raise UsageError("after and before are numbers of events")
        return await begin_replay(engine, webhook, after, before, by=by, owner=for_owner, token=token)

    async def receive_webhook(self, webhook_id: str, headers: Mapping[str, str], body: bytes) -> JobId:
        """Do what a signed message asks: `{"action": "retry", "job": id}`, for jobs of its webhook's owner. The id of the job
        that will be retried; a message that was sent before does nothing more. `BadSignature` when it is not to be believed."""
        return await receive(await self.engine(), webhook_id, headers, body)


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
    there = await engine.store.webhooks()
    if len(there) >= MOST or (
        owner is not None and sum(other.owner == owner for other in there) >= MOST_PER_OWNER
    ):
        raise Conflict(
            f"there are as many webhooks as there may be: {MOST_PER_OWNER} of an owner, {MOST:,} in all"
        )
    if not isinstance(description, str) or len(description) > _LONGEST_DESCRIPTION or "\0" in description:
        raise UsageError(f"description is a text of at most {_LONGEST_DESCRIPTION} characters")
    webhook_id, keys = f"wh_{(token or engine.ids.job_id()).replace('-', '')}", engine.secret_keys()
    put = await engine.store.put_webhook(
        Webhook(
            id=webhook_id,
            url=url,
            events=events,
            owner=None if owner is None else word("owner", owner),
            seeds=(make_seed(webhook_id, engine.ids.secret(), keys),),
            inbound=inbound,
            description=description,
            created_at=await engine.store.now(),
        )
    )
    return revealed(put, keys)


async def _begin_now(engine: Engine, webhook: Webhook) -> None:
    """Nobody has moved the bookmark while there was nobody to tell: it is at an event of long ago.

    The end of the log is read before the other webhooks are. So a webhook that is created later gets all that follows.
    """
    store = engine.store
    before, newest = await store.bookmark(BOOKMARK), await store.newest_event()
    if is_alone(webhook.id, await store.webhooks()) and (before is None or before < newest):
        await store.move_bookmark(BOOKMARK, before=before, to=newest)


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

"""What the front doors keep, here: keys, requests that were answered, operations, webhooks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.domain.access import AccessKey
from holdfast.domain.job import Enqueued
from holdfast.domain.operation import Operation, Progress
from holdfast.domain.webhook import Webhook
from holdfast.engine.api_store import KEEP_OPERATIONS, EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.engine.ports import Clock
from holdfast.stores.api_encoding import answered, begun, begun_before, left, request_digest

#: Until when it is known, the fingerprint of its content, and what the databases keep in the column *answers*.
NamedRow = tuple[datetime, bytes, str]
_NOT_NAMED: NamedRow = (datetime.min.replace(tzinfo=UTC), b"", "")


class ApiTables:
    """The part of the port that `holdfast.engine.api_store` describes."""

    def __init__(self, clock: Clock) -> None:
        self._door_clock = clock
        self._access: dict[str, AccessKey] = {}
        self._requests: dict[tuple[str, str], tuple[datetime, Repeated]] = {}
        self._named: dict[bytes, NamedRow] = {}
        self._operations: dict[str, Operation] = {}
        self._taken: dict[str, datetime] = {}  #: operations that somebody works on, until when
        self._webhooks: dict[str, Webhook] = {}
        self._bookmarks: dict[str, int] = {}

    # -- keys -------------------------------------------------------------------------------------------------------
    async def add_key(self, key: AccessKey, *, lasts: timedelta | None) -> AccessKey:
        now = self._door_clock.now()
        kept = replace(key, created_at=now, expires_at=None if lasts is None else now + lasts)
        known = self._access.get(key.id)
        self._access[key.id] = kept if known is None else replace(known, digest=key.digest)
        return self._access[key.id]

    async def keys(self) -> list[AccessKey]:
        return list(self._access.values())

    async def key(self, digest: bytes) -> AccessKey | None:
        now = self._door_clock.now()
        return next((k for k in self._access.values() if k.digest == digest and k.is_valid(now)), None)

    async def revoke_key(self, key_id: str, *, after: timedelta = timedelta()) -> bool:
        now, key = self._door_clock.now(), self._access.get(key_id)
        if key is None or not key.is_valid(now):
            return False
        self._access[key_id] = replace(key, revoked_at=min(now + after, key.revoked_at or now + after))
        return True

    async def touch_keys(self, key_ids: Collection[str]) -> None:
        for key_id in key_ids:
            if key_id in self._access:
                self._access[key_id] = replace(self._access[key_id], last_used_at=self._door_clock.now())

    # -- requests ---------------------------------------------------------------------------------------------------
    def answered(self, request: NamedRequest) -> Repeated | None:
        """How a request of this name was answered, while that is kept."""
        until, repeated = self._requests.get((request.scope, request.name), (None, None))
        return repeated if until is not None and until > self._door_clock.now() else None

    def remember(self, request: NamedRequest, answers: Sequence[Enqueued], keep: timedelta) -> None:
        repeated = Repeated(fingerprint=request.fingerprint, answers=tuple(answers))
        self._requests[request.scope, request.name] = self._door_clock.now() + keep, repeated

    async def begin_request(
        self, request: NamedRequest, holder: str, *, span: timedelta, keep: timedelta
    ) -> StartedRequest | EarlierRequest:
        now, digest = self._door_clock.now(), request_digest(request)
        until, fingerprint, row = self._named.get(digest, _NOT_NAMED)
        micros, lasts = round(now.timestamp() * 1_000_000), round(span.total_seconds() * 1_000_000)
        found: StartedRequest | EarlierRequest = begun(holder, holder, micros + lasts)
        if until > now:
            found = begun_before(row, request, fingerprint, holder, micros, lasts)
        if isinstance(found, StartedRequest):
            self._named[digest] = now + keep, request.fingerprint, found.ticket
        return found

    async def answer_request(
        self, request: NamedRequest, ticket: str, answer: str, *, keep: timedelta
    ) -> bool:
        until = self._door_clock.now() + keep
        return self._end(request, ticket, (until, request.fingerprint, answered(answer)))

    async def drop_request(self, request: NamedRequest, ticket: str) -> bool:
        return self._end(request, ticket, None)

    async def leave_request(self, request: NamedRequest, ticket: str) -> bool:
        until, fingerprint, _ = self._named.get(request_digest(request), _NOT_NAMED)
        return self._end(request, ticket, (until, fingerprint, left(ticket)))

    def _end(self, request: NamedRequest, ticket: str, row: NamedRow | None) -> bool:
        digest = request_digest(request)
        if self._named.get(digest, _NOT_NAMED)[2] != ticket:
            return False
        del self._named[digest]
        if row is not None:
            self._named[digest] = row
        return True

    # -- operations -------------------------------------------------------------------------------------------------
    async def begin_operation(self, operation: Operation) -> Operation:
        now = self._door_clock.now()
        return self._operations.setdefault(operation.id, replace(operation, created_at=now, updated_at=now))

    async def operation(self, operation_id: str) -> Operation | None:
        return self._operations.get(operation_id)

    async def operations(self, limit: int) -> list[Operation]:
        return list(reversed(self._operations.values()))[:limit]

    async def take_operation(self, span: timedelta) -> Operation | None:
        now = self._door_clock.now()
        free = [o for o in self._running() if self._taken.get(o.id, now) <= now]
        if not free:
            return None
        longest = min(free, key=lambda operation: operation.updated_at)
        self._taken[longest.id] = now + span
        return self._change(replace(longest, epoch=longest.epoch + 1))

    async def advance_operation(
        self, operation: Operation, *, cursor: str | None, done: int, refused: int, span: timedelta
    ) -> bool:
        kept = self._operations.get(operation.id)
        if kept is None or kept.progress is not Progress.RUNNING or kept.epoch != operation.epoch:
            return False
        self._taken[kept.id] = self._door_clock.now() + span
        self._change(replace(kept, cursor=cursor, done=kept.done + done, refused=kept.refused + refused))
        return True

    async def end_operation(self, operation_id: str, progress: Progress, *, error: str | None = None) -> bool:
        kept = self._operations.get(operation_id)
        if kept is None or kept.progress is not Progress.RUNNING:
            return False
        self._change(replace(kept, progress=progress, error=error))
        return True

    def _running(self) -> list[Operation]:
        return [o for o in self._operations.values() if o.progress is Progress.RUNNING]

    def _change(self, operation: Operation) -> Operation:
        self._operations[operation.id] = replace(operation, updated_at=self._door_clock.now())
        return self._operations[operation.id]

    # -- webhooks ---------------------------------------------------------------------------------------------------
    async def put_webhook(self, webhook: Webhook) -> Webhook:
        before = self._webhooks.get(webhook.id)
        created_at = self._door_clock.now() if before is None else before.created_at
        self._webhooks[webhook.id] = replace(webhook, created_at=created_at)
        return self._webhooks[webhook.id]

    async def webhooks(self) -> list[Webhook]:
        return list(self._webhooks.values())

    async def remove_webhook(self, webhook_id: str) -> bool:
        return self._webhooks.pop(webhook_id, None) is not None

    async def webhook_answered(
        self, webhook_id: str, *, well: bool, disable_after: timedelta
    ) -> Webhook | None:
        webhook = self._webhooks.get(webhook_id)
        if webhook is None:
            return None
        self._webhooks[webhook_id] = webhook.answered(
            well=well, now=self._door_clock.now(), disable_after=disable_after
        )
        return self._webhooks[webhook_id]

    async def bookmark(self, name: str) -> int | None:
        return self._bookmarks.get(name)

    async def move_bookmark(self, name: str, *, before: int | None, to: int) -> bool:
        if self._bookmarks.get(name) != before:
            return False
        self._bookmarks[name] = to
        return True

    # -- leaving ----------------------------------------------------------------------------------------------------
    async def forget_requests(self, limit: int) -> int:
        now = self._door_clock.now()
        names = [name for name, (until, _) in self._requests.items() if until <= now][:limit]
        ended = [
            operation.id
            for operation in self._operations.values()
            if operation.progress is not Progress.RUNNING and operation.updated_at + KEEP_OPERATIONS <= now
        ][: limit - len(names)]
        digests = [digest for digest, (until, _, _) in self._named.items() if until <= now]
        digests = digests[: limit - len(names) - len(ended)]
        for name in names:
            del self._requests[name]
        for operation_id in ended:
            del self._operations[operation_id]
        for digest in digests:
            del self._named[digest]
        return len(names) + len(ended) + len(digests)

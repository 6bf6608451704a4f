"""Messages for others: publishing them, and what people may do about those that wait, are parked or were published.
Mixed into the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain.outbox import KEEP_PUBLISHED, Lag, Message, MessageState, NewMessage
from holdfast.domain.validation import whole
from holdfast.engine.coalesce import Coalescer
from holdfast.engine.outbox_store import PublishesInTransactions
from holdfast.engine.payload import encode
from holdfast.engine.ports import Ids, Store
from holdfast.errors import Conflict, UnknownMessage, UsageError

#: How many messages are replayed or forgotten in one statement.
_BATCH = 500
#: No message has a larger number.
LARGEST_NUMBER = 2**63 - 1
CONTENT_TYPE = "content-type"
_LONGEST_REASON = 500


class OutboxActions:
    store: Store
    ids: Ids
    _publishes: Coalescer[NewMessage, None]

    def new_message(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None,
        headers: Mapping[str, str] | None,
        message_id: str | None = None,
        trace: str | None = None,
    ) -> NewMessage:
        """Bytes are the body as they are; anything else is written as JSON. A content type is added where none is given."""
        is_body = isinstance(payload, (bytes, bytearray, memoryview))
        body = bytes(payload) if is_body else encode(payload, what="the payload of a message").encode()
        kind = "application/octet-stream" if is_body else "application/json"
        added = {CONTENT_TYPE: kind} | ({} if trace is None else {"traceparent": trace})
        if headers is not None and not isinstance(headers, Mapping):
            raise UsageError(f"headers is {str(headers)[:40]!r}; it is a mapping of names to texts")
        given = dict(headers or {})
        known = {name.lower() for name in given if isinstance(name, str)}
        return NewMessage(
            id=self.ids.job_id() if message_id is None else message_id,
            topic=topic,
            key=key,
            body=body,
            headers={name: value for name, value in added.items() if name not in known} | given,
        )

    async def publish(self, messages: Sequence[NewMessage], connection: Any = None) -> None:
        """Keep messages until they are delivered; answered after the commit (the caller's own, where a *connection* is
        given)."""
        if not messages:
            return
        if connection is not None:
            await self._publishing_in().publish_in(connection, messages)
        elif len(messages) == 1:
            await self._publishes.do(messages[0])
        else:
            await self._publish(messages)

    async def _publish(self, messages: Sequence[NewMessage]) -> list[None]:
        await self.store.publish(messages)
        return [None] * len(messages)

    def publish_sync(self, messages: Sequence[NewMessage], connection: Any) -> None:
        if messages:
            self._publishing_in().publish_in_sync(connection, messages)

    def _publishing_in(self) -> PublishesInTransactions:
        if not isinstance(self.store, PublishesInTransactions):
            raise UsageError("this store cannot publish inside your transaction; use SQLite or PostgreSQL")
        return self.store

    async def messages(
        self,
        *,
        topic: str | None = None,
        state: str | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        if state is not None and state not in tuple(MessageState):
            raise UsageError(f"state is {str(state)[:40]!r}; it is one of {', '.join(MessageState)}")
        for name in (topic, key):
            if name is not None and not _can_be_asked_for(name):
                return []
        return await self.store.messages(
            topic=topic,
            state=None if state is None else MessageState(state),
            key=key,
            after=None if after is None else whole("after", after, 0, LARGEST_NUMBER),
            limit=whole("limit", limit, 1, 10_000),
        )

    async def message(self, message_id: str) -> Message:
        found = await self.store.message(message_id) if _can_be_asked_for(message_id) else None
        if found is None:
            raise UnknownMessage(message_id)
        return found

    async def replay_messages(self, topic: str, *, first: int, last: int | None) -> int:
        """Let published and parked messages of these numbers be delivered once more; how many."""
        start = whole("first", first, 0, LARGEST_NUMBER)
        end = LARGEST_NUMBER if last is None else whole("last", last, 0, LARGEST_NUMBER)
        if not _can_be_asked_for(topic):
            return 0
        total, at = 0, start
        while at <= end:
            replayed = await self.store.replay_messages(topic, at, end, _BATCH)
            total += replayed.done
            if replayed.next is None:
                break
            at = replayed.next
        return total

    async def replay_message(self, message_id: str) -> None:
        """The same for one. `Conflict` when it waits already."""
        message = await self.message(message_id)
        replayed = await self.store.replay_messages(message.topic, message.number, message.number, 1)
        if not replayed.done:
            raise Conflict(f"the message {message_id} waits already; it will be delivered")

    async def park_message(self, message_id: str, *, reason: str) -> None:
        """Take a message out of line until it is replayed. `Conflict` when it does not wait."""
        _check_reason("parked", reason)
        message = await self.message(message_id)
        if not await self.store.park_message(message.id, reason):
            message = await self.message(message_id)
            raise Conflict(f"the message {message_id} is {message.state} already")

    async def discard_message(self, message_id: str, *, reason: str, by: str) -> None:
        """Give a parked message up, for good. `Conflict` when it is not parked."""
        _check_reason("discarded", reason)
        message = await self.message(message_id)
        if not await self.store.discard_messages([message.id], by, reason):
            message = await self.message(message_id)
            raise Conflict(f"the message {message_id} is {message.state}; only a parked one can be discarded")

    async def message_lags(self) -> list[Lag]:
        return await self.store.lags()

    async def forget_messages(self) -> int:
        """Remove what was published long enough ago; how many."""
        total = 0
        while gone := await self.store.forget_messages(KEEP_PUBLISHED, _BATCH):
            total += gone
            if gone < _BATCH:
                break
        return total


def _check_reason(what: str, reason: object) -> None:
    if not isinstance(reason, str) or not reason or len(reason) > _LONGEST_REASON or "\0" in reason:
        raise UsageError(f"say why it is {what}: reason=…, at most {_LONGEST_REASON} characters")


def _can_be_asked_for(name: object) -> bool:
    """Whether a database can be asked for it: what cannot was never stored."""
    if not isinstance(name, str) or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

"""`app.outbox`: publish messages in one transaction with anything else, and manage those that wait or are parked."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from holdfast.engine.coalesce import Coalescer
from holdfast.engine.engine import Engine
from holdfast.engine.namespace import EngineSource, Namespace
from holdfast.engine.ports import EnqueuesDirectly, Store
from holdfast.errors import Conflict, UnknownMessage, UsageError
from holdfast.outbox.lags import read_lags
from holdfast.outbox.model import KEEP_PUBLISHED, Lag, Message, MessageState, NewMessage
from holdfast.outbox.port import OutboxStore, PublishesDirectly, PublishesInTransactions
from holdfast.outbox.relay.relay import Relay
from holdfast.outbox.relay.route import DELIVER_WITHIN
from holdfast.signals import stop_on_signals
from holdfast.tasks.payload import encode
from holdfast.values.validation import whole

#: How many messages one statement replays or removes.
_BATCH = 500
#: No message has a larger number.
LARGEST_NUMBER = 2**63 - 1
CONTENT_TYPE = "content-type"
_LONGEST_REASON = 500


class Publisher(EngineSource, Protocol):
    """What the outbox needs of an app."""

    def current_trace(self) -> str | None: ...

    def publish_now(self, write: Callable[[Engine], Awaitable[None]]) -> None:
        """Run *write* from code without an event loop, and wait for it."""

    def closed_engine(self) -> Engine:
        """Return an engine for calls that need no event loop."""

    def direct_store(self) -> EnqueuesDirectly | None:
        """Return the store that any thread may write to, or None."""

    def make_relay(self, engine: Engine) -> Relay:
        """Return a relay for the topics of the app. Raises `UsageError` when it has none."""


class Outbox(Namespace):
    """Messages to other systems. A relay delivers each at least once, and those of one key in order."""

    def __init__(self, source: Publisher) -> None:
        super().__init__(source)
        self._publisher = source
        self._writers: WeakKeyDictionary[Engine, Coalescer[NewMessage, None]] = WeakKeyDictionary()

    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002 - as `enqueue` calls it
        connection: Any = None,
    ) -> str:
        """Store a message and return its id after the commit.

        Args:
            topic: A name that was declared with `app.topic`.
            payload: Anything that can be JSON, or bytes, which are sent as they are.
            key: Messages of one key are delivered in their order.
            headers: Sent with the message. A content type is added where none is given.
            id: A message whose id is known already is not stored twice.
            connection: The message is part of the transaction that is open there.
        """
        engine = await self._engine()
        message = self._message(engine, topic, payload, key, headers, id)
        if connection is not None:
            await _in_transactions(engine.store.outbox).publish_in(connection, [message])
        else:
            await self._writer(engine).do(message)
        return message.id

    def publish_sync(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002 - as `enqueue` calls it
        connection: Any = None,
    ) -> str:
        """`publish` for code without an event loop."""
        engine = self._publisher.closed_engine()
        message = self._message(engine, topic, payload, key, headers, id)
        direct = self._publisher.direct_store()
        if connection is not None:
            _in_transactions(engine.store.outbox).publish_in_sync(connection, [message])
        elif direct is not None and isinstance(direct.outbox, PublishesDirectly):
            direct.outbox.publish_sync([message])
        else:
            self._publisher.publish_now(lambda there: there.store.outbox.publish([message]))
        return message.id

    async def list(
        self,
        *,
        topic: str | None = None,
        state: str | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        """Return messages by their numbers, from behind the number *after*.

        *state* is "waiting", "published" or "parked".
        """
        if state is not None and state not in tuple(MessageState):
            raise UsageError(f"state is {str(state)[:40]!r}; it is one of {', '.join(MessageState)}")
        for name in (topic, key):
            if name is not None and not _can_be_stored(name):
                return []
        return await (await self._engine()).store.outbox.messages(
            topic=topic,
            state=None if state is None else MessageState(state),
            key=key,
            after=None if after is None else whole("after", after, 0, LARGEST_NUMBER),
            limit=whole("limit", limit, 1, 10_000),
        )

    async def get(self, message_id: str) -> Message:
        """Return the message as it is now. Raises `UnknownMessage` when there is none."""
        store = (await self._engine()).store
        found = await store.outbox.messages(message_id=message_id) if _can_be_stored(message_id) else []
        if not found:
            raise UnknownMessage(message_id)
        return found[0]

    async def replay(self, message_id: str) -> None:
        """Deliver a published or parked message once more, under its id. Raises `Conflict` while it waits."""
        message = await self.get(message_id)
        store = (await self._engine()).store
        replayed = await store.outbox.replay(message.topic, message.number, message.number, 1)
        if not replayed.done:
            raise Conflict(f"the message {message_id} waits already; it will be delivered")

    async def replay_many(self, topic: str, *, first: int = 0, last: int | None = None) -> int:
        """Deliver the published and parked messages of a topic once more, and return how many.

        *first* and *last* are numbers of messages, both included. Messages keep their ids, so that a receiver can ignore
        those that it has processed.
        """
        start = whole("first", first, 0, LARGEST_NUMBER)
        end = LARGEST_NUMBER if last is None else whole("last", last, 0, LARGEST_NUMBER)
        if not _can_be_stored(topic):
            return 0
        store, total, at = (await self._engine()).store, 0, start
        while at <= end:
            replayed = await store.outbox.replay(topic, at, end, _BATCH)
            total += replayed.done
            if replayed.next is None:
                break
            at = replayed.next
        return total

    async def park(self, message_id: str, *, reason: str) -> None:
        """Deliver a waiting message no more until it is replayed. Raises `Conflict` when it does not wait."""
        _check_reason("parked", reason)
        message = await self.get(message_id)
        if not await (await self._engine()).store.outbox.park(message.id, reason):
            message = await self.get(message_id)
            raise Conflict(f"the message {message_id} is {message.state} already")

    async def discard(self, message_id: str, *, reason: str, by: str = "api") -> None:
        """Never deliver a parked message; an event records *reason* and *by*. Raises `Conflict` when it is not parked."""
        _check_reason("discarded", reason)
        message = await self.get(message_id)
        if not await (await self._engine()).store.outbox.discard([message.id], by, reason):
            message = await self.get(message_id)
            raise Conflict(f"the message {message_id} is {message.state}; only a parked one can be discarded")

    async def lags(self) -> builtins.list[Lag]:
        """Return the backlog of every topic in which a message waits or is parked."""
        return await read_lags((await self._engine()).store)

    async def run_relay(self, *, until_idle: bool = False, handle_signals: bool = False) -> None:
        """Deliver messages until cancelled or stopped. With *until_idle*, return when no message waits any more."""
        engine = await self._engine()
        relay = self._publisher.make_relay(engine)
        async with AsyncExitStack() as stack:
            if handle_signals:
                running = asyncio.current_task()
                assert running is not None
                stop_on_signals(_second(relay.stop, running.cancel), stack, engine.clock, DELIVER_WITHIN)
            await relay.run(until_idle=until_idle)

    def _message(
        self,
        engine: Engine,
        topic: str,
        payload: Any,
        key: str | None,
        headers: Mapping[str, str] | None,
        message_id: str | None,
    ) -> NewMessage:
        is_body = isinstance(payload, (bytes, bytearray, memoryview))
        body = bytes(payload) if is_body else encode(payload, what="the payload of a message").encode()
        kind = "application/octet-stream" if is_body else "application/json"
        trace = self._publisher.current_trace()
        added = {CONTENT_TYPE: kind} | ({} if trace is None else {"traceparent": trace})
        if headers is not None and not isinstance(headers, Mapping):
            raise UsageError(f"headers is {str(headers)[:40]!r}; it is a mapping of names to texts")
        given = dict(headers or {})
        known = {name.lower() for name in given if isinstance(name, str)}
        return NewMessage(
            id=engine.ids.job_id() if message_id is None else message_id,
            topic=topic,
            key=key,
            body=body,
            headers={name: value for name, value in added.items() if name not in known} | given,
        )

    def _writer(self, engine: Engine) -> Coalescer[NewMessage, None]:
        """Return what writes the messages of *engine* in groups."""
        if engine not in self._writers:
            store = engine.store

            async def write(messages: Sequence[NewMessage]) -> Sequence[None]:
                await store.outbox.publish(messages)
                return [None] * len(messages)

            self._writers[engine] = Coalescer(write)
        return self._writers[engine]


def _second(first: Callable[[], object], then: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls *first* at its first call and *then* at every later one."""
    calls = 0

    def act() -> None:
        nonlocal calls
        calls += 1
        (first if calls == 1 else then)()

    return act


async def forget_published(store: Store) -> int:
    """Remove messages that were published long enough ago, and return how many."""
    total = 0
    while gone := await store.outbox.forget(KEEP_PUBLISHED, _BATCH):
        total += gone
        if gone < _BATCH:
            break
    return total


def _in_transactions(outbox: OutboxStore) -> PublishesInTransactions:
    if not isinstance(outbox, PublishesInTransactions):
        raise UsageError("this store cannot publish inside your transaction; use SQLite or PostgreSQL")
    return outbox


def _check_reason(what: str, reason: object) -> None:
    if not isinstance(reason, str) or not reason or len(reason) > _LONGEST_REASON or "\0" in reason:
        raise UsageError(f"say why it is {what}: reason=…, at most {_LONGEST_REASON} characters")


def _can_be_stored(name: object) -> bool:
    """Return whether *name* can be in a database at all; nothing matches one that cannot."""
    if not isinstance(name, str) or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

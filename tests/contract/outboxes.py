"""Short words for what the tests of messages do most."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count

from holdfast.engine.ports import Store
from holdfast.outbox.model import Message, MessageState, NewMessage, Taken
from holdfast.outbox.port import PutOff
from holdfast.stores.sqlite import SqliteStore
from holdfast.wiring import SystemThreads
from tests.contract.world import World

TOPIC = "orders"
SPAN = timedelta(seconds=30)
_numbers = count(1)


def a_message(
    message_id: str | None = None, *, topic: str = TOPIC, key: str | None = None, body: bytes = b"{}"
) -> NewMessage:
    name = f"m{next(_numbers)}" if message_id is None else message_id
    return NewMessage(id=name, topic=topic, key=key, body=body, headers={"a": "b"})


async def publish(store: Store, *names: str, topic: str = TOPIC) -> None:
    """`a1` is the first of key a; a name without a letter has no key."""
    for name in names:
        key = name[0] if name[0].isalpha() else None
        await store.outbox.publish([a_message(name, key=key, topic=topic)])


async def take(
    store: Store, limit: int = 50, *, strict: bool = False, topic: str = TOPIC, span: timedelta = SPAN
) -> list[Taken]:
    return await store.outbox.take({topic: strict}, limit, span)


def names(taken: Sequence[Taken]) -> list[str]:
    return [one.message.id for one in taken]


def put_off(*taken: Taken, seconds: float | None, error: str = "refused", tried: bool = True) -> list[PutOff]:
    wait = None if seconds is None else timedelta(seconds=seconds)
    return [PutOff(one, wait, error, tried) for one in taken]


async def of(store: Store, message_id: str) -> Message:
    [found] = await store.outbox.messages(message_id=message_id)
    return found


async def state_of(store: Store, message_id: str) -> MessageState:
    return (await of(store, message_id)).state


async def drain(store: Store, limit: int = 50, *, strict: bool = False) -> list[str]:
    """All that can be delivered now, in the order in which it was."""
    gone: list[str] = []
    while taken := await take(store, limit, strict=strict):
        gone += names(taken)
        assert await store.outbox.delivered(taken) == len(taken)
    return gone


@asynccontextmanager
async def another(world: World) -> AsyncIterator[Store]:
    """The same messages through connections of their own, as another process has them."""
    store: Store
    if isinstance(world.store, SqliteStore):
        store = SqliteStore(world.store.path, world.clock, SystemThreads())
    elif (url := getattr(world.store, "url", None)) is not None:
        from holdfast.stores.postgres import PostgresStore

        store = PostgresStore(url, world.clock, SystemThreads())
    else:
        yield world.store  # there is only one
        return
    await store.open()
    try:
        yield store
    finally:
        await store.close()

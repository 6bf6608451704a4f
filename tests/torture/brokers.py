"""A broker that messages are brought to and one that hands out hints, what strikes them, and what must have arrived.

Both may be lost as a whole: the store is the truth. Messages go to RabbitMQ; hints come from Redis, or from RabbitMQ, too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from random import Random

from redis.asyncio import Redis

from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast.jobs.job import Event
from holdfast.outbox.model import Message
from tests.e2e.faults.test_relay import ACK, drained, empty_queue
from tests.e2e.faults.world import Site
from tests.torture.audit import PAGE, Summary
from tests.torture.blows import OUTAGE, Blow


class Brokers:
    """*ways* lead to each of them, that to RabbitMQ first."""

    def __init__(
        self, rabbit: RabbitMq, redis: RedisServer | None, ways: Sequence[Proxy], chance: Random, *, own: bool
    ) -> None:
        self.rabbit, self._redis, self._ways, self._chance = rabbit, redis, ways, chance
        self._struck = asyncio.Lock()
        self.blows: dict[str, tuple[int, Blow]] = {
            "broker's connections reset": (3, self._reset),
            "broker silent": (2, self._silence),
            "confirm of messages lost": (4, self._eat_confirm),
        }
        if own:
            self.blows["broker killed"] = (2, self._kill)
        if redis is not None:
            self.blows |= {"hints flushed": (4, self._flush), "hints killed": (2, self._kill_hints)}

    @property
    def settings(self) -> dict[str, str]:
        """Of every process: by which ways the brokers are reached."""
        messages, hints = self._ways[0].route(self.rabbit.url()), self._ways[-1]
        dispatch = messages if self._redis is None else hints.route(self._redis.url())
        return {"broker": messages, "dispatch": dispatch, "outbox_poll": "200ms"}

    async def _kill(self) -> None:
        async with self._struck:
            await asyncio.to_thread(self.rabbit.kill)
            await asyncio.to_thread(self.rabbit.start)

    async def _reset(self) -> None:
        self._chance.choice(self._ways).reset()

    async def _silence(self) -> None:
        way = self._chance.choice(self._ways)
        async with self._struck:
            way.black_hole = True
            await asyncio.sleep(self._chance.random() * 3 * OUTAGE)
            way.heal()

    async def _eat_confirm(self) -> None:
        async with self._struck:
            loss = self._ways[0].lose_answer(ACK)
            await asyncio.to_thread(loss.wait, OUTAGE)
            self._ways[0].heal()

    async def _flush(self) -> None:
        assert self._redis is not None
        async with self._struck:
            client = Redis.from_url(self._redis.url())
            await client.flushall()
            await client.aclose()

    async def _kill_hints(self) -> None:
        assert self._redis is not None
        async with self._struck:
            await asyncio.to_thread(self._redis.kill)
            await asyncio.to_thread(self._redis.start)


@asynccontextmanager
async def brokers(chance: Random, hints: str, rabbit: RabbitMq | None = None) -> AsyncIterator[Brokers]:
    """*rabbit* is one that others use, too: it is cut off, and not killed."""
    with ExitStack() as stack:
        own = rabbit is None
        rabbit = rabbit or stack.enter_context(RabbitMq())
        redis = stack.enter_context(RedisServer()) if hints == "redis" else None
        await empty_queue(rabbit)
        servers: list[RabbitMq | RedisServer] = [rabbit] if redis is None else [rabbit, redis]
        ways = [stack.enter_context(Proxy(one.host, one.port, postgres=False)) for one in servers]
        yield Brokers(rabbit, redis, ways, chance, own=own)


async def undelivered(site: Site) -> list[Message]:
    return await site.app.outbox.list(state="waiting", limit=PAGE)


async def audit_messages(site: Site, rabbit: RabbitMq, events: Iterable[Event], summary: Summary) -> None:
    """One message for each end that was committed, none for any that was not, and those of one key in their order (E44)."""
    told = {f"{event.job_id}/{event.epoch}" for event in events if event.kind == "complete"}
    stored = [message async for message in _messages(site)]
    arrived = await drained(rabbit)
    first = {message_id: place for place, message_id in reversed(list(enumerate(arrived)))}
    summary.messages, summary.doubles = len(told), len(arrived) - len(first)
    summary.lost += [f"message {message_id}" for message_id in sorted(told - first.keys())]
    summary.stuck += [f"message {one.id} is {one.state}" for one in stored if one.state != "published"]
    summary.broken += [f"message {one} is of an end that was undone" for one in sorted(first.keys() - told)]
    by_key: dict[str | None, list[Message]] = defaultdict(list)
    for message in stored:  # by number
        if message.id in first:
            by_key[message.key].append(message)
    summary.broken += [
        f"message {after.id} arrived before {before.id}, which has the same key"
        for line in by_key.values()
        for before, after in pairwise(line)
        if first[after.id] < first[before.id]
    ]


async def _messages(site: Site) -> AsyncIterator[Message]:
    after: int | None = None
    while page := await site.app.outbox.list(after=after, limit=PAGE):
        for message in page:
            yield message
        after = page[-1].number

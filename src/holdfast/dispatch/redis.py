"""Redis as the queue of due jobs: a sorted set for what is due later, one for each lane's line, changed by scripts.

Each take also queues the hints that have become due, so no other process has to. A hint that was taken is gone from
Redis: if its worker dies before it has asked the store, the job is found by the next look at the store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from holdfast.dispatch import scripts
from holdfast.domain.job import JobId, Lane
from holdfast.domain.urls import shown
from holdfast.engine.dispatch import BrokerUnavailable, DispatchEntry, DispatchHint, Sizes, hint_of

#: Short: while Redis is silent a worker waits for it, and then claims from the store.
CONNECT_WITHIN = 1.0
ANSWER_WITHIN = 2.0
#: How many hints one step offers, takes back or queues: Redis does nothing else meanwhile.
AT_ONCE = 100


class RedisDispatch:
    """*name* is the store's own: stores that share a Redis do not meet there."""

    delays = True
    repeats = True

    def __init__(self, address: str, name: str) -> None:
        self._where = shown(address)
        self._space = f"holdfast:{{{name}}}:"
        self._client: Any = Redis.from_url(
            address,
            socket_connect_timeout=CONNECT_WITHIN,
            socket_timeout=ANSWER_WITHIN,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            encoding_errors="replace",
        )
        # Known to Redis by their digests; sent again by themselves when it has forgotten them.
        self._offer = self._client.register_script(scripts.OFFER)
        self._take = self._client.register_script(scripts.TAKE)
        self._cancel = self._client.register_script(scripts.CANCEL)
        self._sizes = self._client.register_script(scripts.SIZES)
        self._forget = self._client.register_script(scripts.FORGET)
        self._ahead: float = math.inf  #: seconds until somebody is due, as the last take has told

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        for some in _parts(entries):
            arguments: list[str | int] = []
            for entry in some:
                delay = math.ceil(entry.delay.total_seconds() * 1000)
                arguments += (entry.job_id, _what(entry), max(delay, 0))
            await self._ask(self._offer, arguments)

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        there: set[JobId] = set()
        for some in _parts(ids):
            there.update(JobId(job_id) for job_id in await self._ask(self._cancel, some))
        return there

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        ahead, *found = await self._ask(self._take, [AT_ONCE, most, *map(lane_text, lanes)])
        self._ahead = math.inf if ahead < 0 else ahead / 1000
        hints = (hint_of(job_id, generation) for job_id, generation in zip(*[iter(found)] * 2, strict=True))
        return [hint for hint in hints if hint is not None]

    async def took(self, hints: Sequence[DispatchHint]) -> None: ...
    async def put_back(self, hints: Sequence[DispatchHint]) -> None: ...

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        bells = [f"{self._space}bell:{lane_text(lane)}" for lane in lanes]
        span = min(timeout, self._ahead, ANSWER_WITHIN / 2)
        if not bells or span <= 0:
            return
        await self._say(self._client.blpop, bells, max(span, 0.001))  # 0 would be for ever

    async def sizes(self, lanes: Collection[Lane]) -> Sizes:
        asked = list(lanes)
        built, later, *ready = await self._ask(self._sizes, [lane_text(lane) for lane in asked])
        return Sizes(dict(zip(asked, ready, strict=True)), later, bool(built))

    async def built(self) -> None:
        await self._say(self._client.set, f"{self._space}built", "1")

    async def forget(self, lanes: Collection[Lane]) -> None:
        await self._ask(self._forget, [])

    async def ping(self) -> None:
        await self._say(self._client.ping)

    async def close(self) -> None:
        with suppress(RedisError, OSError):
            await self._client.aclose()

    async def _ask(self, script: Any, arguments: Sequence[str | int]) -> Any:
        return await self._say(script, [self._space], arguments)

    async def _say(self, command: Any, *words: Any) -> Any:
        try:
            return await command(*words)
        except (RedisError, OSError, TimeoutError) as error:
            # Connections that are kept for later find out by themselves. To end them here would be to end one under
            # somebody who has just taken it: the driver looks away while it ends one.
            raise BrokerUnavailable(f"{self._where} does not do it now ({type(error).__name__})") from error


def lane_text(lane: Lane) -> str:
    return json.dumps(lane, separators=(",", ":"))


def _what(entry: DispatchEntry) -> str:
    return f"{entry.generation}:{entry.priority}:{lane_text(entry.lane)}"


def _parts(things: Collection[Any]) -> Iterator[list[Any]]:
    rest = iter(things)
    while some := list(islice(rest, AT_ONCE)):
        yield some

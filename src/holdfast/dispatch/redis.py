"""Redis as the broker of due jobs: sorted sets of delayed hints and of due hints per lane, changed by scripts.

Each take also moves the hints that have become due, so no other process has to. A hint that was taken is gone
from Redis: if its worker dies before it claims the job in the store, the job is found by the next claim from
the store.
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
from holdfast.engine.dispatch import BrokerUnavailable, DispatchEntry, DispatchHint, Sizes, hint_of
from holdfast.jobs.job import JobId, Lane
from holdfast.values.urls import shown

#: Short, because a worker waits this long for a silent Redis before it claims from the store.
CONNECT_WITHIN = 1.0
ANSWER_WITHIN = 2.0
#: How many hints one script offers, cancels or moves. Redis does nothing else meanwhile.
AT_ONCE = 100


class RedisDispatch:
    """Implements `Dispatch` with Redis. *name* is unique to the store, so that stores can share a server."""

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
        # Called by their digests. The driver sends a script again when Redis has forgotten it.
        self._offer = self._client.register_script(scripts.OFFER)
        self._take = self._client.register_script(scripts.TAKE)
        self._cancel = self._client.register_script(scripts.CANCEL)
        self._sizes = self._client.register_script(scripts.SIZES)
        self._forget = self._client.register_script(scripts.FORGET)
        self._ahead: float = math.inf  #: seconds until the next hint is due, as of the last take

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        for batch in _batches(entries):
            arguments: list[str | int] = []
            for entry in batch:
                delay = math.ceil(entry.delay.total_seconds() * 1000)
                arguments += (entry.job_id, _hint_text(entry), max(delay, 0))
            await self._run(self._offer, arguments)

    async def cancel(self, ids: Collection[JobId]) -> set[JobId]:
        cancelled: set[JobId] = set()
        for batch in _batches(ids):
            cancelled.update(JobId(job_id) for job_id in await self._run(self._cancel, batch))
        return cancelled

    async def take(self, lanes: Sequence[Lane], most: int) -> list[DispatchHint]:
        ahead, *taken = await self._run(self._take, [AT_ONCE, most, *map(lane_text, lanes)])
        self._ahead = math.inf if ahead < 0 else ahead / 1000
        hints = (hint_of(job_id, generation) for job_id, generation in zip(*[iter(taken)] * 2, strict=True))
        return [hint for hint in hints if hint is not None]

    async def took(self, hints: Sequence[DispatchHint]) -> None: ...
    async def put_back(self, hints: Sequence[DispatchHint]) -> None: ...

    async def wait(self, lanes: Sequence[Lane], timeout: float) -> None:
        bells = [f"{self._space}bell:{lane_text(lane)}" for lane in lanes]
        span = min(timeout, self._ahead, ANSWER_WITHIN / 2)
        if not bells or span <= 0:
            return
        await self._send(self._client.blpop, bells, max(span, 0.001))  # 0 would block forever

    async def sizes(self, lanes: Collection[Lane]) -> Sizes:
        known = list(lanes)
        built, later, *ready = await self._run(self._sizes, [lane_text(lane) for lane in known])
        return Sizes(dict(zip(known, ready, strict=True)), later, bool(built))

    async def built(self) -> None:
        await self._send(self._client.set, f"{self._space}built", "1")

    async def forget(self, lanes: Collection[Lane]) -> None:
        await self._run(self._forget, [])

    async def ping(self) -> None:
        await self._send(self._client.ping)

    async def close(self) -> None:
        with suppress(RedisError, OSError):
            await self._client.aclose()

    async def _run(self, script: Any, arguments: Sequence[str | int]) -> Any:
        return await self._send(script, [self._space], arguments)

    async def _send(self, command: Any, *arguments: Any) -> Any:
        try:
            return await command(*arguments)
        except (RedisError, OSError, TimeoutError) as error:
            # Idle connections find out by themselves. Closing them here could close one that another caller
            # has just taken: the driver yields while it closes one.
            raise BrokerUnavailable(f"{self._where} is unavailable ({type(error).__name__})") from error


def lane_text(lane: Lane) -> str:
    return json.dumps(lane, separators=(",", ":"))


def _hint_text(entry: DispatchEntry) -> str:
    return f"{entry.generation}:{entry.priority}:{lane_text(entry.lane)}"


def _batches(items: Collection[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch

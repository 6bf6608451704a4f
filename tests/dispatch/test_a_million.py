"""A million delayed jobs in Redis: each verb sends the same commands as among a thousand, and none of them searches (S6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis

from devservices.redis import RedisServer
from holdfast.dispatch.redis import RedisDispatch, lane_text
from holdfast.engine.dispatch import DispatchEntry
from tests.dispatch.benches import LANE, an_entry

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.timeout(900)]

FEW, MANY = 1_000, 1_000_000
BULK = 10_000
ROUNDS = 200
#: O(log n) among a thousand times as many is twice the work; a search would be a thousand times as much.
SLOWER = 20


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def load(client: Any, name: str, first: int, last: int) -> None:
    """Put jobs that are due in an hour or later where the dispatch keeps them."""
    space, what = f"holdfast:{{{name}}}:", f"1:0:{lane_text(LANE)}"
    due = (await client.time())[0] * 1000 + 3_600_000
    for start in range(first, last, BULK):
        numbers = range(start, min(start + BULK, last))
        pipeline = client.pipeline(transaction=False)
        pipeline.zadd(f"{space}later", {f"job-{number}": due + number for number in numbers})
        pipeline.hset(f"{space}what", mapping={f"job-{number}": what for number in numbers})
        await pipeline.execute()


async def counted(client: Any, verb: Callable[[], Awaitable[Any]]) -> tuple[Counter[str], float]:
    """Return how often each command was run, those of scripts included, and the microseconds of the server in all."""

    async def stats() -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = await client.info("commandstats")
        return {name.removeprefix("cmdstat_"): one for name, one in found.items()}

    before = await stats()
    await verb()
    after = await stats()
    calls: Counter[str] = Counter()
    spent = 0.0
    for name, one in after.items():
        if name in ("info", "script|load", "evalsha", "eval", "hello", "client|setinfo", "auth", "select"):
            continue
        old = before.get(name, {"calls": 0, "usec": 0})
        calls[name] = int(one["calls"] - old["calls"])
        spent += one["usec"] - old["usec"]
    return +calls, spent


async def test_schedule_cancel_and_take_cost_the_same_among_a_million(own_redis: RedisServer) -> None:  # S6
    dispatch, client = RedisDispatch(own_redis.url(), "many"), Redis.from_url(own_redis.url())
    entries: list[DispatchEntry] = []

    async def schedule() -> None:
        entries[:] = [an_entry(delay=7_200) for _ in range(ROUNDS)]
        for entry in entries:
            await dispatch.offer([entry])

    async def cancel() -> None:
        for entry in entries:
            assert await dispatch.cancel([entry.job_id]) == {entry.job_id}

    async def take() -> None:
        await dispatch.offer([an_entry() for _ in range(ROUNDS)])
        for _ in range(ROUNDS):
            assert len(await dispatch.take([LANE], 1)) == 1

    verbs = {"schedule": schedule, "cancel": cancel, "take": take}
    found: dict[int, dict[str, tuple[Counter[str], float]]] = {}
    loaded = 0
    await take()  # so that the bell has rung as often as it does
    for size in (FEW, MANY):
        await load(client, "many", loaded, size)
        loaded = size
        assert (await dispatch.sizes([LANE])).later == size
        found[size] = {name: await counted(client, verb) for name, verb in verbs.items()}
        assert (await dispatch.sizes([LANE])).later == size
    for name in verbs:
        (few, quick), (many, slow) = found[FEW][name], found[MANY][name]
        assert few == many, name
        assert slow < SLOWER * quick, (name, quick, slow)
    await client.aclose()
    await dispatch.close()

"""People against the scheduler, the sweep and the hangman; and many retries at once (E33, S3, S11)."""

from __future__ import annotations

import asyncio
import re
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devservices.redis import RedisServer
from holdfast.records import Event
from tests.conftest import needs_program
from tests.systems.screenshots.api.racing import misplaced, race
from tests.systems.screenshots.api.test_troubleshooting import GUIDE, SLOW
from tests.systems.screenshots.api.world import PAGE, Easel, World, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_of_150_random_retries_each_that_is_accepted_runs_once_and_the_ledger_balances(
    tmp_path: Path,
) -> None:  # S2 S3 E33
    done = await race(tmp_path, f"sqlite:///{tmp_path / 'race.db'}", retries=150, kills=2)
    assert done.problems == []
    assert (done.accepted >= 150, done.kills >= 1, done.swept > 0, done.taken > 0) == (True,) * 4
    assert done.answers[409] > 0  # there were races


def life(*kinds: str) -> list[Event]:
    now = datetime.now(UTC)
    return [Event(id=n, at=now, kind=kind, job_id="j", epoch=n, attempt=1) for n, kind in enumerate(kinds)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kinds",
    [
        ("queued", "processing", "processing", "complete"),  # run twice at a time
        ("queued", "processing", "retry", "manual_retry", "processing", "failed", "processing", "complete"),
        ("queued", "processing", "failed", "manual_retry"),  # a retry that nobody ran
        ("queued", "processing", "manual_retry", "processing", "complete"),
        ("queued", "processing", "retry", "retry", "processing", "complete"),
        ("queued", "processing", "failed", "manual_retry", "manual_retry", "processing", "complete"),
        ("queued", "processing", "reclaimed", "manual_retry", "manual_retry", "processing", "complete"),
    ],
)
def test_the_audit_finds_lives_that_cannot_be(kinds: tuple[str, ...]) -> None:
    assert misplaced(life(*kinds)) != []
    assert misplaced(life("queued", "processing", "retry", "manual_retry", "processing", "complete")) == []


# -- load (S11) -------------------------------------------------------------------------------------------------------
async def test_many_failures_at_once_are_all_retried_and_all_end(
    make_world: Callable[..., World],
) -> None:  # S11
    jobs = 200
    async with make_world(worker_concurrency=16, options={"min_concurrency": 2}).open(credits=jobs) as world:
        urls = [f"https://n{number}.example.com/fail-1/x" for number in range(jobs)]
        ids = await asyncio.gather(*(world.shot(url=url) for url in urls))

        async def all_ended() -> bool:
            return (await world.app.jobs.counts()).get("complete", 0) >= jobs

        await eventually(all_ended, every=0.1, within=60)
        easel = world.browser
        assert isinstance(easel, Easel)
        assert {easel.taken[url] for url in urls} == {2}  # once, and once more
        assert await world.balance() == (0, 0, jobs)
        assert (await world.look(ids[0]))["retryCount"] == 1


async def test_a_second_worker_takes_its_share_and_the_queue_empties(
    make_world: Callable[..., World],
) -> None:  # S11
    async with make_world(worker_concurrency=2).open(works=False) as world:
        easel = world.browser
        assert isinstance(easel, Easel)
        urls = [f"https://example.com/hang/{number}" for number in range(60)]
        ids = await asyncio.gather(*(world.shot(url=url) for url in urls))
        [queue] = [one for one in await world.app.queues.list() if one.name == "screenshots"]
        assert queue.waiting == 60
        async with world.working(), world.working():

            async def both() -> bool:
                return easel.taken.total() > 2  # more than one of them has room for

            await eventually(both)
            easel.free.set()
            for job_id in ids:
                await world.ended(job_id)
        begun = [event for event in await world.app.events.list(limit=2000) if event.kind == "processing"]
        shares = Counter(event.meta["worker"] for event in begun if event.job_id in set(ids))
        assert (len(shares), shares.total()) == (2, 60)


# -- Redis (S6) -------------------------------------------------------------------------------------------------------
@pytest.fixture
def shots_by_redis(tmp_path: Path, redis_server: RedisServer) -> Callable[..., World]:
    def make(**more: Any) -> World:
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
        return World(tmp_path, url, Easel(), **{"redis_url": redis_server.url(), **more})

    return make


async def test_redis_hands_out_screenshots_and_their_retries(
    shots_by_redis: Callable[..., World],
) -> None:  # S6
    async with shots_by_redis().open() as world:
        first = await world.shot(url=PAGE)
        again = await world.shot(url="https://example.com/fail-1/x")
        assert [(await world.ended(one))["status"] for one in (first, again)] == ["COMPLETED"] * 2
        assert await world.balance() == (98, 0, 2)


async def test_what_is_delayed_is_seen_in_redis_as_the_guide_says(
    shots_by_redis: Callable[..., World], redis_server: RedisServer, tmp_path: Path
) -> None:  # S6 S9
    needs_program("redis-cli")  # the command of the guide
    (tmp_path / "data" / "redis").mkdir(parents=True)
    own = redis_server.url(database=9).replace("://:", "://default:")
    (tmp_path / "data" / "redis" / "url").write_text(own)
    [commands] = re.findall(r"```sh\n(there\(\).*?)```", GUIDE.read_text(), re.DOTALL)
    async with shots_by_redis(policies=SLOW, redis_url=own).open() as world:
        job_id = await world.shot(url="https://example.com/fail/x")

        async def seen() -> list[str]:
            asked = await asyncio.create_subprocess_exec("sh", "-c", commands, cwd=tmp_path, stdout=PIPE)
            return (await asked.communicate())[0].decode().split()

        [there, due] = await eventually(seen)
        assert there == job_id
        assert 0 < float(due) / 1000 - time.time() <= 3600


async def test_what_redis_has_forgotten_is_found_in_the_database(
    shots_by_redis: Callable[..., World], redis_server: RedisServer
) -> None:  # S6 E45
    import redis.asyncio

    async with shots_by_redis().open(works=False) as world:
        ids = [await world.shot(url=f"{PAGE}/{number}") for number in range(20)]
        async with redis.asyncio.from_url(redis_server.url()) as there:
            await there.flushall()
        async with world.working():
            for job_id in ids:
                assert (await world.ended(job_id))["status"] == "COMPLETED"
        assert set(world.browser.taken.values()) == {1}  # type: ignore[attr-defined]
        assert await world.balance() == (80, 0, 20)

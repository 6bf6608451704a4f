"""Many hands on one job: one wins, the others are told, and nothing happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.errors import Conflict
from holdfast.jobs.job import Claimed, JobId, Settlement
from holdfast.jobs.verdict import Bury, Complete, Failure, RetryAfter, Verdict
from tests.e2e.faults.app import make_app
from tests.e2e.faults.world import PATIENT, Site, eventually

HOUR = timedelta(hours=1)
BOOM = Failure.of("NETWORK", "boom")


@pytest.fixture
async def hands(site: Site) -> AsyncIterator[list[Holdfast]]:
    """Five apps on one database, each with connections of its own."""
    apps = [make_app(site.url) for _ in range(5)]
    for app in apps:
        await app.runtime.engine()
    yield apps
    for app in apps:
        await app.close()


async def claim(app: Holdfast, limit: int = 1) -> list[Claimed]:
    store = (await app.runtime.engine()).store
    return await store.claim(await store.open_session("hand", HOUR), [app.tasks["echo"].lane], limit)


async def ended(site: Site, verdict: Verdict) -> JobId:
    await site.enqueue("echo", value=1)
    [one] = await claim(site.app)
    await (await site.store()).settle([Settlement(one.lease, verdict, one.attempt)])
    return one.lease.job_id


async def test_fifty_retries_of_one_failed_job_are_one_new_life(
    site: Site, hands: list[Holdfast]
) -> None:  # E33
    job_id = await ended(site, Bury(BOOM))
    answers = await asyncio.gather(*(app.jobs.retry(job_id) for app in hands * 10), return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, Conflict)] == [1]
    row = await site.app.jobs.get(job_id)
    assert (row.state, row.generation, row.manual_retry_count, row.attempt) == ("queued", 2, 1, 0)
    assert await site.kinds(job_id) == ["queued", "processing", "failed", "manual_retry"]
    assert await site.app.dead_letters.list() == []
    assert await (await site.store()).queries.violations() == []


async def test_a_retry_by_hand_against_the_automatic_one_is_one_run(
    site: Site, hands: list[Holdfast]
) -> None:  # E33
    for turn in range(12):
        job_id = await ended(site, RetryAfter(timedelta(milliseconds=20), BOOM))
        await asyncio.sleep(0.014 + turn * 0.001)  # before, at, and after the moment it is due
        one, two, three, four, five = hands
        done = await asyncio.gather(
            one.jobs.retry(job_id), two.jobs.retry(job_id), claim(three), claim(four),
            (await five.runtime.engine()).store.promote(100), return_exceptions=True,
        )  # fmt: skip
        assert all(not isinstance(answer, Exception) or isinstance(answer, Conflict) for answer in done), done
        by_hand = sum(isinstance(answer, int) for answer in done)
        claims = [lease for answer in done[2:4] if isinstance(answer, list) for lease in answer]

        async def the_rest(claims: list[Claimed] = claims) -> bool:
            await (await site.store()).promote(100)
            claims += await claim(site.app, 10)
            return bool(claims)

        await eventually(the_rest, "its run")
        assert [one.lease.job_id for one in claims] == [job_id]
        row = await site.app.jobs.get(job_id)
        assert (row.state, row.generation, row.attempt, row.manual_retry_count) == (
            "processing",
            1,
            2,
            by_hand,
        )
        assert by_hand <= 1
        kinds = await site.kinds(job_id)
        assert kinds == ["queued", "processing", "retry", *["manual_retry"] * by_hand, "processing"]
        await (await site.store()).settle([Settlement(claims[0].lease, Complete("1"), 2)])


async def test_of_many_cancels_one_is_done(site: Site, hands: list[Holdfast]) -> None:  # E29
    for task in ("echo", "gate"):
        job_id = await site.enqueue(task, **({"value": 1} if task == "echo" else {"name": "never"}))
        if task == "echo":
            await claim(site.app)
        answers = await asyncio.gather(
            *(app.jobs.cancel(job_id) for app in hands * 4), return_exceptions=True
        )
        assert answers.count(None) == 1
        assert all(answer is None or isinstance(answer, Conflict) for answer in answers)
        assert (await site.kinds(job_id)).count("cancelled") == 1
        assert (await site.app.jobs.get(job_id)).state == "cancelled"


async def test_a_cancel_against_a_claim_has_one_outcome(site: Site, hands: list[Holdfast]) -> None:  # E4 E29
    for _ in range(15):
        job_id = await site.enqueue("echo", value=1)
        one, two, *_rest = hands
        _, taken = await asyncio.gather(one.jobs.cancel(job_id), claim(two))
        for lease in (taken_one.lease for taken_one in taken):
            await (await site.store()).settle(
                [Settlement(lease, Complete("1"), 1)]
            )  # late: it changes nothing
        row = await site.app.jobs.get(job_id)
        assert (row.state, row.result) == ("cancelled", None)
        kinds = await site.kinds(job_id)
        assert kinds == ["queued", *["processing"] * len(taken), "cancelled", *["late_result"] * len(taken)]


async def test_a_redrive_of_all_leaves_what_is_complete_alone(
    site: Site, hands: list[Holdfast]
) -> None:  # E32
    complete = [await ended(site, Complete("1")) for _ in range(5)]
    failed = [await ended(site, Bury(BOOM)) for _ in range(5)]
    counts = await asyncio.gather(*(app.dead_letters.redrive() for app in hands))
    assert sum(counts) == 5
    for job_id in complete:
        with pytest.raises(Conflict):
            await site.app.jobs.retry(job_id)
        assert await site.kinds(job_id) == ["queued", "processing", "complete"]
    for job_id in failed:
        row = await site.app.jobs.get(job_id)
        assert (row.state, row.generation) == ("queued", 2)
        assert (await site.kinds(job_id))[3:] == ["redriven"]
    running = await site.enqueue("echo", value=1)
    while (await site.app.jobs.get(running)).state != "processing":
        await claim(site.app, 10)
    with pytest.raises(Conflict):
        await site.app.jobs.retry(running)


async def test_the_same_dedupe_key_two_hundred_times_is_one_job(
    site: Site, hands: list[Holdfast]
) -> None:  # E36
    handles = await asyncio.gather(
        *(app.tasks["echo"].options(dedupe_key="same").enqueue(value=1) for app in hands * 40)
    )
    assert len({handle.id for handle in handles}) == 1
    assert [handle.duplicate for handle in handles].count(False) == 1
    row = await site.app.jobs.get(handles[0].id)
    assert (row.state, row.attempt) == ("queued", 0)
    assert (await site.app.jobs.counts())["queued"] == 1
    assert await site.kinds(row.id) == ["queued"]


@pytest.mark.slow
async def test_an_idle_worker_finds_a_job_that_is_retried_by_hand(site: Site) -> None:  # E33
    job_id = await site.enqueue("fatal")
    await site.crew(1, **PATIENT)
    await site.reaches(job_id, "failed")
    for generation in (2, 3):
        await site.app.jobs.retry(job_id)
        await site.started(job_id, generation)
        row = await site.reaches(job_id, "failed")
        assert (row.generation, row.attempt) == (generation, 1)
    await site.consistent([job_id])

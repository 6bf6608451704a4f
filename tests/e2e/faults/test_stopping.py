"""Workers told to stop: always within the grace, and whatever was not finished is given back with its attempt."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.jobs.job import Claimed
from holdfast.worker.worker import Worker as InProcess
from tests.e2e.faults.app import make_app
from tests.e2e.faults.world import PATIENT, Site, alive, eventually, has_taken

pytestmark = pytest.mark.slow


async def test_what_runs_finishes_and_what_waits_stays_in_line(site: Site) -> None:  # E9 E31
    running = [await site.enqueue("gate", name="open") for _ in range(2)]
    worker = await site.worker("--concurrency", "2", **PATIENT).ready()
    for one in running:
        await site.started(one)
    waiting = [await site.enqueue("gate", name="open") for _ in range(4)]
    worker.signal(signal.SIGTERM)
    site.flag("open")
    assert await worker.ended() == 0
    for one in running:
        row = await site.app.jobs.get(one)
        assert (row.state, row.result, row.attempt) == ("complete", worker.pid, 1)
    for one in waiting:
        row = await site.app.jobs.get(one)
        # One that was claimed in the same moment may have been finished too; nothing is left half-way.
        assert (row.state, row.attempt) in (("queued", 0), ("complete", 1))
    assert worker.told("worker.stopped")
    assert not worker.has_traceback
    assert await (await site.store()).queries.violations() == []


async def test_what_is_not_finished_within_the_grace_is_given_back(site: Site) -> None:  # E9 E31 E41
    ids = {
        "async": await site.enqueue("gate", name="never"),
        "thread": await site.enqueue("deaf", name="never"),
        "process": await site.enqueue("burn", name="fire", seconds=60),
    }
    worker = await site.worker(grace="500ms", **PATIENT).ready()
    await site.started(ids["async"])
    await site.started(ids["thread"])
    [fire] = await site.started("fire")
    worker.signal(signal.SIGTERM)
    assert (
        await worker.ended() == 0
    )  # without the grace it would wait for all of them, and longer than this does
    for what, one in ids.items():
        row = await site.app.jobs.get(one)
        assert (row.state, row.attempt, row.leased_by) == ("queued", 0, None), what
        assert await site.kinds(one) == ["queued", "processing", "released"], what
        assert [a.outcome for a in await site.app.jobs.attempts(one)] == ["released"], what
    assert site.journal("cancelled", ids["async"])
    await eventually(lambda: not alive(fire["pid"]), "the child to end")
    assert not worker.has_traceback


async def test_a_handler_that_swallows_its_cancellation_is_cancelled_again(sqlite_site: Site) -> None:  # E31
    site = sqlite_site
    job_id = await site.enqueue("stubborn", times=2)
    worker = await site.worker(grace="100ms", **PATIENT).ready()
    await site.started(job_id)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert len(site.journal("cancelled", job_id)) == 3
    row = await site.app.jobs.get(job_id)
    assert (row.state, row.attempt) == ("queued", 0)


async def test_a_handler_that_never_stops_is_left_behind_and_its_job_given_back(
    site: Site,
) -> None:  # E9 E31
    stubborn = await site.enqueue("stubborn", times=-1)
    other = await site.enqueue("gate", name="open")
    worker = await site.worker(grace="100ms", **PATIENT).ready()
    await site.started(stubborn)
    await site.started(other)
    worker.signal(signal.SIGTERM)
    site.flag("open")
    assert await worker.ended() == 0
    row = await site.app.jobs.get(stubborn)
    assert (row.state, row.attempt, row.leased_by) == ("queued", 0, None)
    assert await site.kinds(stubborn) == ["queued", "processing", "released"]
    assert [line["job_id"] for line in worker.told("job.still_running")] == [stubborn]
    # It left after the last write and after the store was closed, and said so last.
    assert worker.told("worker.stopped")
    [left] = worker.told("process.exit_forced")
    assert left["reason"] == "a handler does not stop when it is cancelled"
    assert '"process.exit_forced"' in worker.log.splitlines()[-1]
    assert not worker.has_traceback
    assert (await site.app.jobs.counts())["processing"] == 0


async def test_a_parent_of_several_workers_ends_when_a_handler_never_stops(sqlite_site: Site) -> None:  # E31
    site = sqlite_site
    job_id = await site.enqueue("stubborn", times=-1)
    parent = site.worker("--processes", "2", grace="100ms", **PATIENT)
    [start] = await site.started(job_id)
    parent.signal(signal.SIGTERM)
    assert await parent.ended() == 0
    assert not alive(start["pid"])
    assert await site.kinds(job_id) == ["queued", "processing", "released"]


async def test_what_a_claim_brings_after_the_stop_is_given_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:  # E9 E31
    """In this process: the stop comes exactly while the answer of the claim is on its way, and there is no grace."""
    ids = await site.enqueue_many("gate", [{"name": "open"}] * 4)
    workers: list[InProcess] = []
    run = InProcess.run

    def remember(worker: InProcess) -> Coroutine[Any, Any, None]:
        workers.append(worker)
        return run(worker)

    monkeypatch.setattr(InProcess, "run", remember)
    async with make_app(site.url, grace="0s", concurrency=8) as app:
        store = (await app.runtime.engine()).store
        claim = store.claim

        async def claim_and_stop(*args: Any, **more: Any) -> list[Claimed]:
            claimed = await claim(*args, **more)
            workers[0].stop()
            return claimed

        monkeypatch.setattr(store, "claim", claim_and_stop)
        async with asyncio.timeout(20):
            await app.run_worker(maintenance=False)
    assert not site.journal("start")
    for one in ids:
        row = await site.app.jobs.get(one)
        assert (row.state, row.attempt, row.crashes) == ("queued", 0, 0)
        assert await site.kinds(one) == ["queued", "processing", "released"]


async def test_a_second_signal_does_not_wait_for_the_grace(postgres_site: Site) -> None:  # E9 E31
    site = postgres_site
    job_id = await site.enqueue("burn", name="fire", seconds=60)
    worker = await site.worker(grace="60s", **PATIENT).ready()
    [fire] = await site.started("fire")
    worker.signal(signal.SIGTERM)
    await eventually(lambda: has_taken(worker.pid, signal.SIGTERM), "the first to arrive")
    await asyncio.sleep(0.3)
    assert worker.process.poll() is None  # the first one waits
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    row = await site.app.jobs.get(job_id)
    assert (row.state, row.attempt) == ("queued", 0)
    await eventually(lambda: not alive(fire["pid"]), "the child to end")


async def test_a_worker_told_to_stop_while_it_starts_does_stop(site: Site) -> None:  # E31
    ids = await site.enqueue_many("echo", [{"value": n} for n in range(50)])
    for delay in (0.0, 0.1, 0.2, 0.3, 0.5):
        worker = site.worker(**PATIENT)
        await asyncio.sleep(delay)
        worker.signal(signal.SIGTERM)
        # Before it listens the signal ends it; afterwards it ends in order.
        assert await worker.ended() in (0, -signal.SIGTERM), worker.log
        assert not worker.has_traceback
    assert (await site.app.jobs.counts())["processing"] == 0
    await site.worker("--until-idle", **PATIENT).ended()
    stories = await site.consistent(ids)
    assert {(await site.app.jobs.get(one)).attempt for one in ids} == {1}
    assert all(event.kind != "reclaimed" for story in stories.values() for event in story)


async def test_a_stop_in_the_moment_in_which_handlers_raise_makes_no_second_copy(
    site: Site,
) -> None:  # E5 E31
    ids = [await site.enqueue("fail_at", name="now") for _ in range(20)]
    worker = await site.worker("--concurrency", "20", **PATIENT).ready()
    for one in ids:
        await site.started(one)
    site.flag("now")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert (await site.app.jobs.counts())["processing"] == 0
    await site.worker("--until-idle", **PATIENT).ended()
    stories = await site.consistent(ids)
    for one in ids:
        row = await site.app.jobs.get(one)
        assert (row.state, row.attempt, row.crashes) == ("failed", 3, 0)
        kept = [event.kind for event in stories[one] if event.kind not in ("released", "processing")]
        assert kept == ["queued", "retry", "retry", "failed"]
    assert len(await site.app.dead_letters.list(limit=100)) == len(ids)


async def test_a_job_that_raises_while_it_is_given_back_is_in_one_place_only(site: Site) -> None:  # E5 E9 E31
    """Without a grace: of the handlers some have just raised, some are cancelled, some raise because they are cancelled."""
    ids: list[str] = []
    for turn, delay in enumerate((0.0, 0.004, 0.008)):
        batch = [await site.enqueue("fail_at", name=f"now {turn}") for _ in range(15)]
        batch += [await site.enqueue("fail_when_cancelled") for _ in range(5)]
        worker = await site.worker("--concurrency", "60", grace="0s", **PATIENT).ready()
        for one in (*ids, *batch):
            if (await site.app.jobs.get(one)).state in ("queued", "processing"):
                await site.started(one)
        site.flag(f"now {turn}")
        await asyncio.sleep(delay)
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
        assert (await site.app.jobs.counts())["processing"] == 0
        assert await (await site.store()).queries.violations() == []
        ids += batch
    site.flag("let go")
    assert await site.worker("--until-idle", **PATIENT).ended() == 0
    stories = await site.consistent(ids)
    for one in ids:
        row = await site.app.jobs.get(one)
        kinds = [event.kind for event in stories[one]]
        assert (row.state, row.attempt, row.crashes) == ("failed", 3, 0), kinds
        assert kinds.count("retry") == 2  # whatever was given back in between burnt nothing
        assert kinds.count("failed") == 1

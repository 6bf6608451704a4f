"""Redrives with a canary and a ramp, whose processes are all killed in the middle."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from holdfast.engine.operation import Operation, Progress
from holdfast.jobs.job import Settlement
from holdfast.jobs.verdict import Bury, Failure
from holdfast.resilience.pacing import Phase
from tests.e2e.faults.world import Site, eventually

pytestmark = pytest.mark.slow
JOBS = 40


async def _dead_letters(site: Site) -> list[str]:
    ids = await site.enqueue_many("echo", [{"value": n} for n in range(JOBS)], max_attempts=9)
    store = await site.store()
    session = await store.open_session("the test", timedelta(minutes=1))
    claimed = await store.claim(session, sorted(await store.lanes.all()), JOBS)
    failure = Failure.of("TIMEOUT")
    await store.settle([Settlement(one.lease, Bury(failure), one.attempt) for one in claimed])
    await store.close_session(session)
    assert await site.app.dead_letters.count() == JOBS
    return ids


async def test_a_ramp_goes_on_after_everything_was_killed_and_moves_each_job_once(
    site: Site,
) -> None:  # E4 E6 E32
    ids, chance = await _dead_letters(site), random.Random(3)
    begun = await site.app.operations.begin("redrive", canary=3, ramp_from=4, rate=20, by="ann")

    async def look() -> Operation:
        return await site.app.operations.get(begun.id)

    done, ramped = 0, False
    for kill in range(2):
        await site.crew(2)
        wanted = done + chance.randrange(5, 12)

        async def moved(wanted: int = wanted) -> bool:
            return (await look()).done >= wanted

        await eventually(moved, "the operation to move more jobs")
        now = await look()
        assert now.progress is Progress.RUNNING, kill
        ramped |= now.phase is Phase.RAMP
        for worker in site.workers:
            worker.kill()
        done = (await look()).done
    assert ramped
    assert done < JOBS
    await site.crew(2)

    async def is_done() -> bool:
        return (await look()).progress is Progress.DONE

    await eventually(is_done, "the operation to end")
    now = await look()
    assert (now.done, now.refused, now.ended, now.failed_again) == (JOBS, 0, JOBS, 0)
    rows = [await site.app.jobs.get(one) for one in ids]
    assert {(row.state, row.generation) for row in rows} == {("complete", 2)}
    for one in ids:
        assert (await site.kinds(one)).count("redriven") == 1
    events = await site.app.events.list(limit=10_000)
    ended = [event.meta for event in events if event.kind == "operation_ended"]
    assert [(one["progress"], one["done"]) for one in ended] == [("done", JOBS)]
    await site.consistent(ids)

"""Jobs that nobody can run beside jobs that anybody can, and clocks that disagree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.jobs.job import JobId, JobSpec, Lane, NewJob
from holdfast.wiring import SystemClock
from tests.e2e.faults.app import make_app
from tests.e2e.faults.world import PATIENT, Site
from tests.heartbeats import extend

HOUR = timedelta(hours=1)


@pytest.mark.slow
async def test_jobs_that_cannot_be_read_are_buried_and_unknown_ones_wait(site: Site) -> None:  # E47
    store, new_id = await site.store(), site.app.runtime.new_id
    spec = JobSpec(lane=site.app.tasks["echo"].lane, max_attempts=3)
    unreadable = [
        NewJob(JobId(new_id()), payload, spec) for payload in ("{", '{"value": "one"}', "[]", '{"other": 1}')
    ]
    await store.enqueue(unreadable)
    future = NewJob(JobId(new_id()), "{}", JobSpec(lane=Lane("default", "from_the_future")))
    await store.enqueue([future])
    good = await site.enqueue_many("echo", [{"value": n} for n in range(20)])
    [worker] = await site.crew(1, **PATIENT)
    for one in good:
        assert (await site.reaches(one, "complete")).attempt == 1
    for job in unreadable:
        row = await site.reaches(job.id, "failed")
        assert (row.error_code, row.attempt, row.crashes) == ("PAYLOAD_INVALID", 1, 0)
    assert {letter.id for letter in await site.app.dead_letters.list()} == {job.id for job in unreadable}
    row = await site.app.jobs.get(future.id)
    assert (row.state, row.attempt) == ("queued", 0)
    [told] = worker.told("task.unknown")
    assert told["tasks"] == ["from_the_future"]
    await site.consistent([*good, *(job.id for job in unreadable)])


@pytest.mark.slow
async def test_a_worker_in_another_time_zone_keeps_the_same_times(site: Site) -> None:  # E7
    before = datetime.now(UTC)
    later = (await site.app.tasks["echo"].options(delay="1s").enqueue(value=1)).id
    moment = (
        await site.app.tasks["echo"].options(run_at=datetime.now(UTC) + timedelta(seconds=1)).enqueue(value=2)
    ).id
    failing = await site.enqueue("fail")
    await site.crew(1, tz="Asia/Kathmandu", **PATIENT)  # 5 h 45 min ahead
    for one in (later, moment):
        row = await site.reaches(one, "complete")
        assert row.started_at is not None
        assert timedelta(seconds=1) <= row.started_at - before < timedelta(minutes=1)
    row = await site.reaches(failing, "failed")
    assert row.attempt == 3
    first, second, third = await site.app.jobs.attempts(failing)
    for one_attempt, next_attempt in ((first, second), (second, third)):
        assert one_attempt.ended_at is not None
        gap = next_attempt.started_at - one_attempt.ended_at
        assert timedelta(milliseconds=50) <= gap < timedelta(minutes=1)


class SteppedClock(SystemClock):
    """A machine whose wall clock was set; nobody can set the monotonic one."""

    def __init__(self, step: timedelta) -> None:
        self._step = step

    def now(self) -> datetime:
        return super().now() + self._step


@pytest.mark.parametrize("minutes", [10, -10, 180, -180])
async def test_a_step_of_the_wall_clock_expires_no_lease(site: Site, minutes: int) -> None:  # E7 E30
    await site.enqueue("echo", value=1)
    store = await site.store()
    session = await store.open_session("steady", timedelta(minutes=2))
    [one] = await store.claim(session, [site.app.tasks["echo"].lane], 1)
    app = make_app(site.url, clock=SteppedClock(timedelta(minutes=minutes)))
    engine = await app.runtime.engine()
    try:
        assert await engine.recovery.reclaim() == 0  # a reaper whose clock jumped
        assert await extend(engine.store, session)  # a worker whose clock jumped
        assert await engine.store.held(session) == {one.lease}
        await store.close_session(session)
        assert await engine.recovery.reclaim() == 1  # what is really lost is reclaimed all the same
    finally:
        await app.close()
    assert await site.kinds(one.lease.job_id) == ["queued", "processing", "reclaimed"]


@pytest.mark.parametrize("hours", [3, -3])
async def test_on_postgresql_only_the_servers_clock_counts(postgres_site: Site, hours: int) -> None:  # E7
    site = postgres_site
    job_id = (await site.app.tasks["echo"].options(delay="5m").enqueue(value=1)).id
    app = make_app(site.url, clock=SteppedClock(hours * HOUR))
    store = (await app.runtime.engine()).store
    try:
        ahead = await store.promote(100)
        assert ahead is not None
        assert timedelta(minutes=4) < ahead <= timedelta(minutes=5)
        session = await store.open_session("ahead", HOUR)
        assert await store.claim(session, [app.tasks["echo"].lane], 1) == []
    finally:
        await app.close()
    assert (await site.app.jobs.get(job_id)).attempt == 0

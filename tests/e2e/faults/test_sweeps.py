"""Sweeps over more rows than one look can hold: none stops at its first page, and none is stopped by one row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.engine.recovery import BATCH
from holdfast.jobs.job import Claimed, Session, Settlement
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Complete
from tests.e2e.faults.app import make_app
from tests.e2e.faults.world import Site

HOUR = timedelta(hours=1)
#: More than two pages.
MANY = 2 * BATCH + 1


async def claimed(site: Site, count: int, worker: str) -> tuple[Session, list[Claimed]]:
    """So many jobs without a timeout, in the hands of one session."""
    await site.enqueue_many("echo", [{"value": n} for n in range(count)])
    store = await site.store()
    session, found = await store.open_session(worker, HOUR), list[Claimed]()
    while len(found) < count:
        found += await store.claim(session, [site.app.tasks["echo"].lane], count - len(found))
    return session, found


async def test_a_thousand_living_leases_do_not_hide_the_dead_one(site: Site) -> None:  # E30
    living, kept = await claimed(site, MANY, "alive")
    dead, [lost] = await claimed(site, 1, "gone")
    store = await site.store()
    await store.close_session(dead)
    assert await (await site.app.runtime.engine()).recovery.reclaim() == 1
    row = await site.app.jobs.get(lost.lease.job_id)
    assert (row.state, row.attempt, row.crashes) == ("queued", 1, 1)
    assert await store.held(living) == {one.lease for one in kept}
    assert await store.queries.violations() == []


@pytest.mark.slow
async def test_ten_thousand_orphans_are_all_reclaimed_and_counted(site: Site) -> None:  # E30
    gone, lost = await claimed(site, 10_000, "gone")
    await (await site.store()).close_session(gone)
    engine = await site.app.runtime.engine()
    assert await engine.recovery.reclaim() == len(lost) == 10_000
    assert await engine.recovery.reclaim() == 0
    counts = await site.app.jobs.counts()
    assert (counts["queued"], counts["processing"]) == (10_000, 0)
    reclaimed = [event.job_id for event in await site.all_events() if event.kind == "reclaimed"]
    assert sorted(reclaimed) == sorted(one.lease.job_id for one in lost)
    assert await engine.store.queries.violations() == []


async def test_a_hook_that_refuses_one_job_does_not_keep_the_others_lost(site: Site) -> None:  # E30
    gone, lost = await claimed(site, 20, "gone")
    await (await site.store()).close_session(gone)
    refused = lost[7].lease.job_id
    app = make_app(site.url)

    @app.on("reclaimed")
    async def refuse(_transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        if any(moved.job_id == refused for moved in moves):
            raise ValueError("not this one")

    async with app:
        engine = await app.runtime.engine()
        assert await engine.recovery.reclaim() == 19
        assert await engine.recovery.reclaim() == 0
    assert (await site.app.jobs.get(refused)).state == "processing"
    assert await (await site.app.runtime.engine()).recovery.reclaim() == 1  # by somebody without that hook
    assert (await site.app.jobs.counts())["queued"] == 20


async def test_every_deadline_that_passed_is_seen_beside_those_that_have_none(site: Site) -> None:  # E34
    late = await site.enqueue_many("gate", [{"name": "never"}] * MANY, deadline="1ms")
    await claimed(site, 10, "alive")
    free = await site.enqueue_many("echo", [{"value": n} for n in range(MANY)])
    assert await (await site.app.runtime.engine()).recovery.time_out() == MANY
    counts = await site.app.jobs.counts()
    assert (counts["failed"], counts["queued"], counts["processing"]) == (MANY, len(free), 10)
    assert {(await site.app.jobs.get(one)).error_code for one in (late[0], late[-1])} == {"TIMEOUT"}
    assert await (await site.store()).queries.violations() == []


async def test_all_that_is_due_steps_into_line_and_the_rest_is_told_of(site: Site) -> None:  # E1
    ids = await site.enqueue_many("echo", [{"value": n} for n in range(MANY)], delay="1ms")
    await site.enqueue_many("echo", [{"value": n} for n in range(MANY)], delay="1h")
    store = await site.store()
    ahead: timedelta | None = timedelta()
    for _ in range(4):  # as the duty does: while somebody is due, at once again
        if ahead == timedelta():
            ahead = await store.promote(BATCH)
    assert ahead is not None
    assert timedelta(minutes=50) < ahead <= HOUR
    session, found = await store.open_session("alive", HOUR), list[Claimed]()
    while page := await store.claim(session, [site.app.tasks["echo"].lane], BATCH):
        found += page
    assert sorted(one.lease.job_id for one in found) == sorted(ids)


async def test_retention_goes_on_until_nothing_is_left_to_remove(site: Site) -> None:  # E38
    _, done = await claimed(site, MANY, "alive")
    _, kept = await claimed(site, 10, "alive too")
    store = await site.store()
    await store.settle([Settlement(one.lease, Complete("1"), one.attempt) for one in done])
    removed = await (await site.app.runtime.engine()).recovery.purge(Retention(jobs=timedelta()))
    assert removed == MANY
    assert {row.id for row in (await site.app.jobs.list(limit=MANY)).rows} == {
        one.lease.job_id for one in kept
    }
    assert await store.queries.violations() == []

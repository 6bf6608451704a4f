"""Numbers that do not fit into 32 bits: after two, and after four thousand million claims, events, sessions and jobs."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import psycopg
import pytest

from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.job import Settlement
from holdfast.jobs.verdict import Complete, Failure, RetryAfter
from tests.e2e.faults.world import PATIENT, Site
from tests.heartbeats import extend


async def count_on_from(site: Site, number: int) -> None:
    """As if so much had happened already."""
    if site.is_postgres:
        with psycopg.connect(site.url) as server:
            for sequence in ("epoch", "event_seq", "session_id_seq"):
                server.execute("SELECT setval(%s, %s)", (f"holdfast.{sequence}", number))
        return
    [one] = await site.enqueue_many("echo", [{"value": 0}])
    await site.app.jobs.cancel(one)
    database = sqlite3.connect(site.url.removeprefix("sqlite:///"))
    with database:
        database.execute("UPDATE holdfast_event SET seq = seq + ?", (number - 2,))
        database.execute("UPDATE holdfast_job SET id = ?, queued_event = ?", (number, number - 1))
        database.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('holdfast_session', ?)", (number,))
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("bits", [31, 32])
async def test_work_goes_on_past_so_many_bits(site: Site, bits: int) -> None:  # E5 E60
    edge = 2**bits
    await count_on_from(site, edge - 30)
    ids = await site.enqueue_many("flaky", [{"value": n} for n in range(50)])
    ids += [await site.enqueue("echo", value=n) for n in range(20)]
    worker = site.worker("--until-idle", "--concurrency", "4", **PATIENT)
    assert await worker.ended() == 0
    rows = [await site.app.jobs.get(one) for one in ids]
    assert {row.state for row in rows} == {"complete"}
    assert min(row.epoch for row in rows) < edge < max(row.epoch for row in rows)
    stories = await site.consistent(ids)
    for story in stories.values():  # the fence and the log only grow
        assert [event.id for event in story] == sorted({event.id for event in story})
        epochs = [event.epoch for event in story if event.kind == "processing"]
        assert epochs == sorted(set(epochs))
    assert not worker.has_traceback
    assert not worker.told("settlement.refused")


@pytest.mark.parametrize("bits", [31, 32])
async def test_sessions_past_so_many_bits_keep_their_leases_apart(site: Site, bits: int) -> None:  # E4
    await count_on_from(site, 2**bits - 1)
    store, lane = await site.store(), site.app.tasks["echo"].lane
    await site.enqueue_many("echo", [{"value": n} for n in range(3)])
    sessions = [await store.open_session(f"worker {n}", timedelta(hours=1)) for n in range(3)]
    assert max(session.id for session in sessions) > 2**bits
    leases = [one.lease for session in sessions for one in await store.claim(session, [lane], 1)]
    assert [await store.held(session) for session in sessions] == [{lease} for lease in leases]
    assert all([await extend(store, session) for session in sessions])


async def test_an_attempt_that_took_a_month_is_settled(site: Site) -> None:  # E8
    """A month has more milliseconds than 32 bits can count."""
    await site.enqueue_many("echo", [{"value": n} for n in range(2)])
    store, lane = await site.store(), site.app.tasks["echo"].lane
    session = await store.open_session("patient", timedelta(hours=1))
    one, two = await store.claim(session, [lane], 2)
    month = timedelta(days=30)
    boom = RetryAfter(timedelta(), Failure.of("NETWORK", "boom"))
    assert await store.settle(
        [
            Settlement(one.lease, Complete("1"), one.attempt, month),
            Settlement(two.lease, boom, two.attempt, month),
        ]
    ) == [SettlementStatus.APPLIED, SettlementStatus.APPLIED]
    assert await site.kinds(one.lease.job_id) == ["queued", "processing", "complete"]
    assert await site.kinds(two.lease.job_id) == ["queued", "processing", "retry"]

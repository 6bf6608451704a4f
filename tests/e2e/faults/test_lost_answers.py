"""The server commits and its answer is lost: the same operation again has the same effect once, with one event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from devservices.proxy import Proxy
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import StoreUnavailable
from holdfast.jobs.job import Claimed, Settlement
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from tests.contract import outboxes
from tests.e2e.faults.app import make_app
from tests.e2e.faults.world import Site
from tests.heartbeats import extend

pytestmark = pytest.mark.service
HOUR = timedelta(hours=1)
BOOM = Failure.of("NETWORK", "boom")


@pytest.fixture
async def eaten(postgres_site: Site, postgres_proxy: Proxy) -> AsyncIterator[Site]:
    """A site whose test process speaks through the proxy."""
    direct = postgres_site.app
    postgres_site.app = make_app(postgres_proxy.route(postgres_site.url))
    await postgres_site.app.runtime.engine()
    yield postgres_site
    await postgres_site.app.close()
    postgres_site.app = direct


async def claimed(site: Site, **options: Any) -> Claimed:
    await site.app.tasks["echo"].options(**options).enqueue(value=1)
    store = await site.store()
    session = await store.open_session("reader", HOUR)
    [one] = await store.claim(session, [site.app.tasks["echo"].lane], 1)
    return one


async def settle(site: Site, one: Claimed, verdict: Verdict) -> SettlementStatus:
    [answer] = await (await site.store()).settle([Settlement(one.lease, verdict, one.attempt)])
    return answer


async def test_an_enqueue_is_stored_once(eaten: Site, postgres_proxy: Proxy) -> None:  # E6
    await eaten.enqueue("echo", value=0)  # its lane is known now
    loss = postgres_proxy.lose_answer("INSERT")
    job_id = await eaten.enqueue("echo", value=1)
    assert loss.is_set()
    assert await eaten.kinds(job_id) == ["queued"]
    assert (await eaten.app.jobs.counts())["queued"] == 2


async def test_a_keyed_enqueue_is_stored_once_and_is_no_duplicate_of_itself(
    eaten: Site, postgres_proxy: Proxy
) -> None:  # E6 E36
    loss = postgres_proxy.lose_answer("COMMIT")
    handle = await eaten.app.tasks["echo"].options(dedupe_key="k").enqueue(value=1)
    assert loss.is_set()
    assert not handle.duplicate
    assert await eaten.kinds(handle.id) == ["queued"]
    assert (await eaten.app.jobs.counts())["queued"] == 1


async def test_many_jobs_are_stored_once(eaten: Site, postgres_proxy: Proxy) -> None:  # E6 E46
    await eaten.enqueue("echo", value=0)
    loss = postgres_proxy.lose_answer("COMMIT")
    ids = await eaten.enqueue_many("echo", [{"value": n} for n in range(2500)])
    assert loss.is_set()
    assert len(set(ids)) == 2500
    assert (await eaten.app.jobs.counts())["queued"] == 2501
    events = await eaten.all_events()
    assert sorted(e.job_id for e in events if e.job_id in set(ids)) == sorted(ids)


async def test_a_claim_is_held_though_nobody_knows(eaten: Site, postgres_proxy: Proxy) -> None:  # E6
    other, job_id = [await eaten.enqueue("echo", value=value) for value in (0, 1)]
    store, lanes = await eaten.store(), [eaten.app.tasks["echo"].lane]
    session = await store.open_session("reader", HOUR)
    # Before the first claim the driver asks about types, and a look goes ahead of it: they are not meant.
    [first] = await store.claim(session, lanes, 1)
    assert first.lease.job_id == other
    loss = postgres_proxy.lose_answer("SELECT 1")
    with pytest.raises(StoreUnavailable):
        await store.claim(session, lanes, 1)
    assert loss.is_set()
    [lease] = await store.held(session) - {first.lease}
    assert lease.job_id == job_id
    assert await store.settle([Settlement(lease, Release())]) == [SettlementStatus.APPLIED]
    row = await eaten.app.jobs.get(job_id)
    assert (row.state, row.attempt) == ("queued", 0)


@pytest.mark.slow
async def test_a_worker_gives_back_what_it_claimed_unknowingly_and_runs_it(
    eaten: Site, postgres_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:  # E6 E9
    job_id = await eaten.enqueue("echo", value=1)
    store = await eaten.store()
    claim, losses = store.claim, iter(["SELECT 1"])

    async def claim_without_answer(*args: Any, **more: Any) -> list[Claimed]:
        for tag in losses:
            await store.queries.counts()
            postgres_proxy.lose_answer(tag)
        return await claim(*args, **more)

    monkeypatch.setattr(store, "claim", claim_without_answer)
    working = asyncio.ensure_future(eaten.app.run_worker(maintenance=False))
    try:
        row = await eaten.reaches(job_id, "complete")
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert postgres_proxy.answer_to_lose is None
    assert (row.result, row.attempt, row.crashes) == (1, 1, 0)
    kinds = await eaten.kinds(job_id)
    assert kinds in (
        ["queued", "processing", "released", "processing", "complete"],
        ["queued", "processing", "complete"],  # the answer eaten was another's: then nothing was lost
    )


SETTLES: dict[str, tuple[Verdict, list[str], str, int]] = {
    "complete": (Complete("7"), ["queued", "processing", "complete"], "complete", 1),
    "retry": (RetryAfter(timedelta(), BOOM), ["queued", "processing", "retry"], "queued", 1),
    "bury": (Bury(BOOM), ["queued", "processing", "failed"], "failed", 1),
    "release": (Release(), ["queued", "processing", "released"], "queued", 0),
}


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_settlement_is_applied_once(eaten: Site, postgres_proxy: Proxy, verb: str) -> None:  # E5 E6
    verdict, kinds, state, attempt = SETTLES[verb]
    assert (
        await settle(eaten, await claimed(eaten), verdict) is SettlementStatus.APPLIED
    )  # the driver knows the types now
    if state == "queued":
        await eaten.app.jobs.cancel((await eaten.app.jobs.list()).rows[0].id)
    one, store = await claimed(eaten), await eaten.store()
    # A burial is two statements in a transaction; the others are one statement that commits by itself.
    loss = postgres_proxy.lose_answer("COMMIT" if verb == "bury" else "SELECT 1")
    assert await settle(eaten, one, verdict) is SettlementStatus.REPEATED
    assert loss.is_set()
    row = await eaten.app.jobs.get(one.lease.job_id)
    assert (row.state, row.attempt) == (state, attempt)
    assert await eaten.kinds(row.id) == kinds
    assert len(await eaten.app.jobs.attempts(row.id)) == 1
    assert len(await eaten.app.dead_letters.list()) == 2 * (verb == "bury")
    assert await store.queries.violations() == []


async def test_a_lease_is_extended_and_a_reclaim_is_counted_once(
    eaten: Site, postgres_proxy: Proxy
) -> None:  # E6 E30
    one, store = await claimed(eaten, max_attempts=3), await eaten.store()
    session = await store.open_session("writer", HOUR)
    heartbeat = store.heartbeat()
    assert await asyncio.to_thread(heartbeat.beat, session)  # its connection is open from now on
    for _ in range(
        10
    ):  # the answer to a beat has no tag, so another connection may answer first and lose its own
        loss = postgres_proxy.lose_answer(None)
        try:
            await asyncio.to_thread(heartbeat.beat, session)
        except StoreUnavailable:
            break
    else:
        pytest.fail("no beat has lost its answer")
    assert loss.is_set()
    assert await asyncio.to_thread(heartbeat.beat, session)  # on a new connection
    await asyncio.to_thread(heartbeat.close)
    await store.close_session(session)
    assert not await extend(store, session)
    for open_one in range(session.id + 1):
        await store.close_session(type(session)(id=type(session.id)(open_one), worker="", ttl=HOUR))
    engine = await eaten.app.runtime.engine()
    loss = postgres_proxy.lose_answer("COMMIT")
    await engine.recovery.reclaim()
    assert loss.is_set()
    row = await eaten.app.jobs.get(one.lease.job_id)
    assert (row.state, row.attempt, row.crashes) == ("queued", 1, 1)
    assert await eaten.kinds(row.id) == ["queued", "processing", "reclaimed"]


async def test_a_cancel_is_done_once_and_answered_as_done(eaten: Site, postgres_proxy: Proxy) -> None:  # E6
    job_id = await eaten.enqueue("echo", value=1)
    loss = postgres_proxy.lose_answer(
        "SELECT 1"
    )  # the move, which commits by itself; the look before it finds nothing
    await eaten.app.jobs.cancel(job_id)
    assert loss.is_set()
    assert (await eaten.app.jobs.get(job_id)).state == "cancelled"
    assert await eaten.kinds(job_id) == ["queued", "cancelled"]


async def test_a_manual_retry_is_done_once_and_answered_as_done(
    eaten: Site, postgres_proxy: Proxy
) -> None:  # E6 E33
    one, store = await claimed(eaten), await eaten.store()
    await store.settle([Settlement(one.lease, Bury(BOOM), 1)])
    loss = postgres_proxy.lose_answer("COMMIT")
    assert await eaten.app.jobs.retry(one.lease.job_id) == 1
    assert loss.is_set()
    row = await eaten.app.jobs.get(one.lease.job_id)
    assert (row.state, row.generation, row.manual_retry_count) == ("queued", 2, 1)
    assert await eaten.kinds(row.id) == ["queued", "processing", "failed", "manual_retry"]


@pytest.mark.slow
async def test_a_worker_whose_answers_are_lost_again_and_again_ends_each_job_once(
    postgres_site: Site, postgres_proxy: Proxy
) -> None:  # E5 E6
    site = postgres_site
    ids = await site.enqueue_many("echo", [{"value": n} for n in range(400)])
    ids += await site.enqueue_many("fail", [{}] * 50)
    await site.crew(1, url=postgres_proxy.route(site.url), lease="5s", heartbeat="1s")
    for tag in ("SELECT", "INSERT", None, "COMMIT", "SELECT", None, "UPDATE", "SELECT"):
        loss = postgres_proxy.lose_answer(tag)
        counts = await site.app.jobs.counts()
        if not counts["queued"] and not counts["processing"]:
            break
        with contextlib.suppress(TimeoutError):  # it need not come: the work may not have such an answer now
            await asyncio.to_thread(loss.wait, 0.3)
    postgres_proxy.heal()
    await site.drained()
    await site.consistent(ids)
    rows = [await site.app.jobs.get(one) for one in ids]
    assert [row.state for row in rows] == ["complete"] * 400 + ["failed"] * 50
    assert {row.attempt for row in rows[400:]} == {3}
    assert {row.crashes for row in rows} == {0}


async def test_a_refusal_is_on_record_even_when_the_connection_breaks_in_it(
    eaten: Site, postgres_proxy: Proxy
) -> None:  # E4 E6
    one, store = await claimed(eaten), await eaten.store()
    session = await store.open_session("last", HOUR)
    for number in range(session.id + 1):
        await store.close_session(type(session)(id=type(session.id)(number), worker="", ttl=HOUR))
    assert await (await eaten.app.runtime.engine()).recovery.reclaim() == 1
    loss = postgres_proxy.lose_request(b"ARRAY[$2::uuid], ARRAY[$3::bigint]")
    assert await settle(eaten, one, Complete("7")) is SettlementStatus.STALE
    assert loss.is_set()
    assert await eaten.kinds(one.lease.job_id) == ["queued", "processing", "reclaimed", "stale_write"]


async def test_a_message_is_stored_once_and_marked_once(eaten: Site, postgres_proxy: Proxy) -> None:  # E6 E44
    store = await eaten.store()
    stored = postgres_proxy.lose_answer("SELECT")
    await outboxes.publish(store, "a1")
    assert stored.is_set()
    [one] = await outboxes.take(store)  # it is there once
    marked = postgres_proxy.lose_answer("SELECT")
    await store.outbox.delivered([one])
    assert marked.is_set()
    assert await outboxes.state_of(store, "a1") == "published"
    assert await outboxes.take(store) == []

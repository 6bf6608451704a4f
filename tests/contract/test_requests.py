"""Requests that their senders have named: sent again, they store nothing more and are answered as before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast.engine.named_request import EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.engine.tables import requests
from holdfast.jobs.job import Enqueued, JobFilter, JobSpec, NewJob
from holdfast.jobs.moves import Kind
from holdfast.wiring import SystemIds
from tests.contract.world import LANE, MINUTE, World

_ids = SystemIds()
REQUEST = NamedRequest("POST /jobs ann", "order-7", b"content")
DAY = timedelta(days=1)


def new_jobs(count: int = 1, **spec: Any) -> list[NewJob]:
    return [NewJob(_ids.job_id(), "{}", JobSpec(lane=LANE, **spec)) for _ in range(count)]


def answered(answers: Sequence[Enqueued] | Repeated) -> list[str]:
    assert not isinstance(answers, Repeated)
    return [answer.id for answer in answers]


async def test_a_request_that_is_sent_again_stores_nothing_and_is_answered_as_before(
    world: World,
) -> None:  # E37
    jobs = new_jobs(3)
    first = await world.store.enqueue_once(REQUEST, jobs, keep=DAY)
    assert answered(first) == [job.id for job in jobs]
    again = await world.store.enqueue_once(REQUEST._replace(fingerprint=b"other"), new_jobs(), keep=DAY)
    assert isinstance(again, Repeated)
    assert (again.fingerprint, again.ids) == (b"content", tuple(job.id for job in jobs))
    assert await world.store.queries.count(JobFilter()) == 3


async def test_requests_of_another_scope_or_name_are_others(world: World) -> None:  # E37
    others = [REQUEST._replace(scope="POST /jobs bob"), REQUEST._replace(name="order-8")]
    tricky = [
        NamedRequest("ab", "c", b""),
        NamedRequest("a", "bc", b""),
        NamedRequest("", "\x00\ud800" * 3000, b""),
    ]
    for request in (REQUEST, *others, *tricky):
        assert answered(await world.store.enqueue_once(request, new_jobs(), keep=DAY))


async def test_a_request_whose_time_is_up_is_unknown_removed_or_not(world: World) -> None:  # E37
    await world.store.enqueue_once(REQUEST, new_jobs(), keep=MINUTE)
    await world.advance("59s")
    assert isinstance(await world.store.enqueue_once(REQUEST, new_jobs(), keep=MINUTE), Repeated)
    await world.advance("1s")
    fresh = new_jobs()
    assert answered(await world.store.enqueue_once(REQUEST, fresh, keep=MINUTE)) == [fresh[0].id]
    again = await world.store.enqueue_once(REQUEST, new_jobs(), keep=MINUTE)
    assert isinstance(again, Repeated)
    assert again.ids == (fresh[0].id,)


async def test_an_answer_that_was_lost_is_given_again(world: World) -> None:  # E37
    jobs = new_jobs(2)
    first = await world.store.enqueue_once(REQUEST, jobs, keep=DAY)
    assert answered(await world.store.enqueue_once(REQUEST, jobs, keep=DAY)) == answered(first)
    assert await world.kinds(jobs[0].id) == ["queued"]


async def test_jobs_that_are_known_without_their_request_are_not_stored_twice(world: World) -> None:  # E37
    jobs = new_jobs(2)
    await world.store.enqueue(jobs)
    assert answered(await world.store.enqueue_once(REQUEST, jobs, keep=DAY)) == [job.id for job in jobs]
    assert await world.store.queries.count(JobFilter()) == 2


async def test_a_repeated_answer_tells_which_jobs_had_a_twin(world: World) -> None:  # E36 E37
    [twin] = await world.store.enqueue(new_jobs(dedupe=b"d" * 32))
    spec = JobSpec(lane=LANE, dedupe=b"d" * 32)
    jobs = [NewJob(_ids.job_id(), "{}", spec), *new_jobs()]
    expected = [Enqueued(twin.id, duplicate=True), Enqueued(jobs[1].id)]
    assert list(await world.store.enqueue_once(REQUEST, jobs, keep=DAY)) == expected  # type: ignore[arg-type]
    again = await world.store.enqueue_once(REQUEST, new_jobs(), keep=DAY)
    assert isinstance(again, Repeated)
    assert list(again.answers) == expected


async def test_of_many_at_once_one_is_stored(world: World) -> None:  # E37
    calls = [world.store.enqueue_once(REQUEST, new_jobs(), keep=DAY) for _ in range(30)]
    answers = await asyncio.gather(*calls)
    [stored] = [answer for answer in answers if not isinstance(answer, Repeated)]
    assert {answer.ids for answer in answers if isinstance(answer, Repeated)} == {(stored[0].id,)}
    assert await world.store.queries.count(JobFilter()) == 1


async def test_a_request_whose_jobs_a_hook_refuses_is_not_kept(world: World) -> None:  # E37
    async def refuse(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        raise ValueError("not today")

    world.store.hooks.append((frozenset({Kind.queued}), refuse))
    with pytest.raises(ValueError, match="not today"):
        await world.store.enqueue_once(REQUEST, new_jobs(), keep=DAY)
    world.store.hooks.clear()
    assert answered(await world.store.enqueue_once(REQUEST, new_jobs(), keep=DAY))


async def test_hooks_are_told_of_named_requests_once(world: World) -> None:  # E37
    told: list[str] = []

    async def listen(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        told.extend(moved.job_id for moved in moves)

    world.store.hooks.append((frozenset({Kind.queued}), listen))
    jobs = new_jobs(2)
    for _ in range(2):
        await world.store.enqueue_once(REQUEST, jobs, keep=DAY)
    assert told == [job.id for job in jobs]


async def test_what_a_named_request_has_enqueued_can_be_claimed(world: World) -> None:  # E37
    fair = LANE._replace(fair=True)
    jobs = [NewJob(_ids.job_id(), "{}", JobSpec(lane=fair, owner="ann", key="k")) for _ in range(2)]
    await world.store.enqueue_once(REQUEST, jobs, keep=DAY)
    [claimed] = await world.claim(limit=2, lane=fair)
    assert claimed.lease.job_id == jobs[0].id


async def test_requests_are_forgotten_when_their_time_is_up_in_batches(world: World) -> None:  # E37
    for number in range(5):
        await world.store.enqueue_once(REQUEST._replace(name=str(number)), new_jobs(), keep=MINUTE)
    await world.store.enqueue_once(REQUEST, new_jobs(), keep=DAY)
    assert await requests.forget(world.store, 10) == 0
    await world.advance("1m")
    assert [await requests.forget(world.store, 3) for _ in range(3)] == [3, 2, 0]
    assert isinstance(await world.store.enqueue_once(REQUEST, new_jobs(), keep=DAY), Repeated)


# -- requests that are carried out step by step ---------------------------------------------------------------------------
async def begin(
    world: World, holder: str, request: NamedRequest = REQUEST
) -> StartedRequest | EarlierRequest:
    return await requests.begin(world.store, request, holder, span=MINUTE, keep=DAY)


async def ours(world: World, holder: str, request: NamedRequest = REQUEST) -> StartedRequest:
    found = await begin(world, holder, request)
    assert isinstance(found, StartedRequest)
    return found


async def test_a_request_is_begun_by_one_and_answered_again_to_all(world: World) -> None:  # E37
    begun = await ours(world, "a")
    assert await begin(world, "b") == EarlierRequest(b"content", None)
    assert await begin(world, "b", REQUEST._replace(fingerprint=b"other")) == EarlierRequest(b"content", None)
    assert await requests.answer(world.store, REQUEST, begun.ticket, '{"x": "é"}', keep=DAY)
    for fingerprint in (b"content", b"other"):
        found = await begin(world, "c", REQUEST._replace(fingerprint=fingerprint))
        assert found == EarlierRequest(b"content", '{"x": "é"}')


async def test_of_many_that_begin_at_once_one_does(world: World) -> None:  # E37
    found = await asyncio.gather(*(begin(world, f"holder-{number}") for number in range(20)))
    assert sum(isinstance(one, StartedRequest) for one in found) == 1
    assert [one for one in found if isinstance(one, EarlierRequest)] == [
        EarlierRequest(b"content", None)
    ] * 19


async def test_a_beginning_whose_answer_was_lost_is_the_same_when_it_is_sent_again(
    world: World,
) -> None:  # E6
    assert await ours(world, "a") == await ours(world, "a")


async def test_a_request_that_was_refused_leaves_its_name_to_others(world: World) -> None:  # E37
    begun = await ours(world, "a")
    assert await requests.drop(world.store, REQUEST, begun.ticket)
    again = await ours(world, "b", REQUEST._replace(fingerprint=b"mended"))
    assert again.token != begun.token
    assert not await requests.drop(world.store, REQUEST, begun.ticket)


async def test_who_takes_over_from_one_who_was_lost_does_so_under_the_same_token(world: World) -> None:  # E37
    lost = await ours(world, "a")
    await world.advance("59s")
    assert await begin(world, "b") == EarlierRequest(b"content", None)
    await world.advance("1s")
    assert await begin(world, "b", REQUEST._replace(fingerprint=b"other")) == EarlierRequest(b"content", None)
    next_one = await ours(world, "b")
    assert (next_one.token, next_one.ticket == lost.ticket) == (lost.token, False)
    # It was only slow. What it has to say is another's to say now.
    assert not await requests.answer(world.store, REQUEST, lost.ticket, "1", keep=DAY)
    assert not await requests.leave(world.store, REQUEST, lost.ticket)
    assert await requests.leave(world.store, REQUEST, next_one.ticket)
    last = await ours(world, "c")
    assert last.token == lost.token
    assert await requests.answer(world.store, REQUEST, last.ticket, "2", keep=DAY)
    assert await begin(world, "d") == EarlierRequest(b"content", "2")


async def test_what_was_answered_is_kept_for_its_time_and_then_begun_anew(world: World) -> None:  # E37
    begun = await ours(world, "a")
    await requests.answer(world.store, REQUEST, begun.ticket, "1", keep=MINUTE)
    await ours(world, "a", REQUEST._replace(name="left alone"))
    await world.advance("59s")
    assert await requests.forget(world.store, 10) == 0
    await world.advance("1s")
    assert (await ours(world, "b")).token != begun.token
    await world.advance("1d")
    assert await requests.forget(world.store, 10) == 2

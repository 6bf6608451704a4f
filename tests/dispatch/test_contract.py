"""One text for every broker: what `Dispatch` promises, with real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast.dispatch.redis import RedisDispatch
from holdfast.engine.dispatch import BrokerUnavailable, Dispatch, DispatchHint, hint_of
from holdfast.jobs.job import JobId
from tests.dispatch.benches import LANE, OTHER, SERVERS, a_dispatch, address_of, an_entry, hints


@pytest.fixture(params=["memory", "redis", "rabbitmq"])
async def dispatch(request: pytest.FixtureRequest) -> AsyncIterator[Dispatch]:
    async for made in _made(request):
        yield made


@pytest.fixture(params=["memory", "redis"])
async def keeps_time(request: pytest.FixtureRequest) -> AsyncIterator[Dispatch]:
    """RabbitMQ does not: what is due later is offered to it when it is due."""
    async for made in _made(request):
        yield made


async def _made(request: pytest.FixtureRequest) -> AsyncIterator[Dispatch]:
    kind = request.param
    servers = {kind: request.getfixturevalue(SERVERS[kind])} if kind in SERVERS else {}
    made = a_dispatch(kind, address_of(kind, servers))
    yield made
    await made.close()


async def test_what_is_offered_is_taken_once_in_its_order(dispatch: Dispatch) -> None:  # E45
    first, second, third = an_entry(), an_entry(), an_entry()
    await dispatch.offer([first, second, third])
    taken = await dispatch.take([LANE], 2)
    assert taken == hints(first, second)
    await dispatch.took(taken)
    taken = await dispatch.take([LANE], 10)
    assert taken == hints(third)
    await dispatch.took(taken)
    assert await dispatch.take([LANE], 10) == []


async def test_lanes_are_apart_and_the_first_is_served_first(dispatch: Dispatch) -> None:  # E45
    one, other = an_entry(), an_entry(OTHER)
    await dispatch.offer([one, other])
    assert await dispatch.take([OTHER._replace(fair=False)], 10) == []
    assert await dispatch.take([OTHER, LANE], 10) == hints(other, one)


async def test_nobody_is_given_what_another_has_taken(dispatch: Dispatch) -> None:  # E45
    entries = [an_entry() for _ in range(40)]
    await dispatch.offer(entries)
    parts = await asyncio.gather(*(dispatch.take([LANE], 10) for _ in range(5)))
    taken = [hint for part in parts for hint in part]
    assert len(taken) == 40
    assert set(taken) == set(hints(*entries))


async def test_whoever_waits_is_woken(dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:  # E45
    monkeypatch.setattr("holdfast.dispatch.redis.ANSWER_WITHIN", 20.0)
    await dispatch.take([LANE], 1)
    waiting = asyncio.ensure_future(_until_there(dispatch))
    await asyncio.sleep(0)
    entry = an_entry()
    await dispatch.offer([entry])
    async with asyncio.timeout(30):  # it looks by itself after a minute
        assert await waiting == hints(entry)


async def _until_there(dispatch: Dispatch) -> list[DispatchHint]:
    while not (taken := await dispatch.take([LANE], 1)):
        await dispatch.wait([LANE], 60)
    return taken


async def test_waiting_has_an_end(dispatch: Dispatch) -> None:  # E45
    await dispatch.take([LANE], 1)
    async with asyncio.timeout(20):
        await dispatch.wait([LANE], 0.05)


async def test_its_sizes_are_told(dispatch: Dispatch) -> None:  # E45
    await dispatch.offer([an_entry(), an_entry(), an_entry(OTHER)])
    async with asyncio.timeout(20):  # RabbitMQ counts what it has confirmed a moment later
        while (sizes := await dispatch.sizes([LANE, OTHER])).ready != {LANE: 2, OTHER: 1}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert sizes.later == 0


async def test_what_is_forgotten_is_not_taken(dispatch: Dispatch) -> None:  # E45
    await dispatch.offer([an_entry(), an_entry(OTHER), an_entry(delay=0.01)])
    await dispatch.forget([LANE, OTHER])
    await asyncio.sleep(0.02)
    assert await dispatch.take([LANE, OTHER], 10) == []


async def test_what_is_due_later_is_not_taken_before(dispatch: Dispatch) -> None:  # E45 S6
    await dispatch.offer([an_entry(delay=60)])
    assert await dispatch.take([LANE], 10) == []


# -- what a broker that keeps time can do ---------------------------------------------------------------------------------
async def test_what_is_due_later_is_taken_when_it_is_due(keeps_time: Dispatch) -> None:  # S6
    late, soon = an_entry(delay=1.1), an_entry(delay=1.0)
    await keeps_time.offer([late, soon, an_entry(delay=3600)])
    assert (await keeps_time.sizes([LANE])).later >= 1  # the two may be due already
    taken: list[DispatchHint] = []
    async with asyncio.timeout(20):
        while len(taken := taken + await keeps_time.take([LANE], 10)) < 2:
            await keeps_time.wait([LANE], 5)
    assert taken == hints(soon, late)


async def test_whoever_waits_does_not_sleep_past_one_that_comes_to_be_due_first(
    keeps_time: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:  # S6
    monkeypatch.setattr("holdfast.dispatch.redis.ANSWER_WITHIN", 20.0)
    await keeps_time.take([LANE], 1)
    waiting = asyncio.ensure_future(_until_there(keeps_time))
    await asyncio.sleep(0)
    entry = an_entry(delay=0.1)
    await keeps_time.offer([an_entry(delay=60), entry])
    async with asyncio.timeout(30):
        assert await waiting == hints(entry)


async def test_what_is_offered_twice_is_there_once_and_keeps_its_place(keeps_time: Dispatch) -> None:  # E45
    first, second = an_entry(), an_entry()
    await keeps_time.offer([first, second])
    await keeps_time.offer([second, first])
    assert await keeps_time.take([LANE], 10) == hints(first, second)


async def test_better_priorities_come_first(keeps_time: Dispatch) -> None:  # E45
    low, high, middle = an_entry(priority=-5), an_entry(priority=32_000), an_entry()
    await keeps_time.offer([low, middle, high])
    assert await keeps_time.take([LANE], 10) == hints(high, middle, low)


async def test_a_delayed_one_can_be_reclaimed(keeps_time: Dispatch) -> None:  # S6
    ready, later, gone = an_entry(), an_entry(delay=60), an_entry()
    await keeps_time.offer([ready, later, gone])
    await keeps_time.take([LANE], 1)
    there = await keeps_time.cancel([ready.job_id, later.job_id, gone.job_id, JobId("nobody")])
    assert there == {later.job_id, gone.job_id}  # the first was taken
    assert await keeps_time.cancel([later.job_id]) == set()
    assert await keeps_time.take([LANE], 10) == []
    assert (await keeps_time.sizes([LANE])).later == 0


async def test_what_is_hastened_is_there_now_and_once(keeps_time: Dispatch) -> None:  # S2 S6
    later = an_entry(delay=60)
    await keeps_time.offer([later])
    await keeps_time.offer([an_entry(job_id=later.job_id)])
    assert (await keeps_time.sizes([LANE])).later == 0
    assert await keeps_time.take([LANE], 10) == hints(later)
    assert await keeps_time.take([LANE], 10) == []


async def test_what_is_put_off_leaves_the_line(keeps_time: Dispatch) -> None:  # S6
    entry = an_entry()
    await keeps_time.offer([entry])
    await keeps_time.offer([an_entry(job_id=entry.job_id, delay=60)])
    assert await keeps_time.take([LANE], 10) == []
    assert (await keeps_time.sizes([LANE])).later == 1


async def test_a_newer_generation_replaces_an_older_one_and_never_the_other_way(
    keeps_time: Dispatch,
) -> None:  # E45
    first = an_entry(OTHER)
    second = an_entry(job_id=first.job_id, generation=2)
    await keeps_time.offer([first, second, first])
    assert await keeps_time.take([OTHER, LANE], 10) == hints(second)


async def test_that_everything_was_offered_is_remembered_until_it_is_emptied(
    keeps_time: Dispatch,
) -> None:  # E45
    assert not (await keeps_time.sizes([LANE])).built
    await keeps_time.built()
    assert (await keeps_time.sizes([LANE])).built
    await keeps_time.forget([LANE])
    assert not (await keeps_time.sizes([LANE])).built


# -- what goes wrong ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
async def test_a_broker_that_is_not_there_is_told_of_in_one_line_without_a_secret(kind: str) -> None:  # E45
    scheme = {"redis": "redis", "rabbitmq": "amqp"}[kind]
    dispatch = a_dispatch(kind, f"{scheme}://user:s3cret@127.0.0.1:1/")
    with pytest.raises(BrokerUnavailable) as away:
        await dispatch.offer([an_entry()])
    assert "s3cret" not in str(away.value)
    assert "\n" not in str(away.value)
    for ask in (
        dispatch.take([LANE], 1),
        dispatch.wait([LANE], 0.1),
        dispatch.sizes([LANE]),
        dispatch.ping(),
    ):
        with pytest.raises(BrokerUnavailable):
            await ask
    await dispatch.close()


async def test_a_question_that_fails_takes_no_connection_from_another(own_redis: RedisServer) -> None:  # E45
    dispatch = RedisDispatch(own_redis.url(), "beside")
    await asyncio.gather(*(dispatch.ping() for _ in range(4)))  # four connections are kept for later
    for _ in range(20):
        failing = dispatch._send(dispatch._client.execute_command, "NOSUCHCOMMAND")
        first, *others = await asyncio.gather(
            failing, *(_late(dispatch, turns) for turns in range(12)), return_exceptions=True
        )
        assert isinstance(first, BrokerUnavailable)
        assert others == [None] * 12
    await dispatch.close()


async def _late(dispatch: Dispatch, turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    await dispatch.ping()


async def test_what_was_not_acknowledged_comes_again_when_its_worker_is_gone(
    own_rabbitmq: RabbitMq,
) -> None:  # E45
    first, second = (a_dispatch("rabbitmq", own_rabbitmq.url(), "gone") for _ in range(2))
    entries = [an_entry(), an_entry()]
    await first.offer(entries)
    taken = await first.take([LANE], 2)
    await first.took(taken[:1])
    await first.close()
    async with asyncio.timeout(20):
        while not (again := await second.take([LANE], 10)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert again == taken[1:]
    await second.put_back(again)
    assert await second.take([LANE], 10) == again
    await second.took(again)
    await second.close()


@pytest.mark.parametrize(
    ("job_id", "generation"),
    [
        ("", "1"),
        ("x" * 36, "1"),
        *(("0190a0b0-1111-7abc-8def-000000000001", word) for word in ("", "0", "-1", "1.5", "٣", "99999")),
    ],
)
def test_what_cannot_be_a_hint_of_ours_is_none(job_id: str, generation: str) -> None:  # E45
    assert hint_of(job_id, generation) is None

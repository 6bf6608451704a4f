"""Messages at rest: kept once, taken by one at a time, fenced by their epoch, published, put off, parked."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.outbox.lags import read_lags
from holdfast.outbox.model import MessageState, Taken
from holdfast.outbox.port import PutOff
from tests.contract.outboxes import (
    SPAN,
    TOPIC,
    a_message,
    another,
    drain,
    names,
    of,
    publish,
    put_off,
    state_of,
    take,
)
from tests.contract.world import World


async def test_a_message_is_kept_as_it_was_given(world: World) -> None:  # E44
    body = bytes(range(256))
    await world.store.outbox.publish([a_message("one", key="k", body=body)])
    kept = await of(world.store, "one")
    assert (kept.id, kept.topic, kept.key, kept.body, kept.headers) == ("one", TOPIC, "k", body, {"a": "b"})
    assert (kept.state, kept.tries, kept.error) == (MessageState.WAITING, 0, None)
    assert (kept.not_before, kept.settled_at) == (None, None)
    assert kept.created_at.tzinfo is not None
    assert await world.store.outbox.messages(message_id="two") == []


async def test_a_message_is_kept_once_however_often_it_is_sent(world: World) -> None:  # E44
    for body in (b"1", b"2"):
        await world.store.outbox.publish([a_message("one", body=body), a_message("one", body=b"3")])
    [taken] = await take(world.store)
    assert taken.message.body == b"1"
    for _ in range(2):
        assert await world.store.outbox.delivered([taken]) == 1
        await world.store.outbox.publish(
            [a_message("one")]
        )  # its first answer was eaten, and it is published already
    assert await take(world.store) == []
    assert await state_of(world.store, "one") is MessageState.PUBLISHED


async def test_publishing_nothing_does_nothing(world: World) -> None:  # E44
    await world.store.outbox.publish([])
    assert await world.store.outbox.messages() == []
    assert await world.store.outbox.delivered([]) == 0
    assert await world.store.outbox.put_off([]) == 0


async def test_a_message_is_taken_by_one_at_a_time(world: World) -> None:  # E44
    await publish(world.store, "1")
    [taken] = await take(world.store)
    assert taken.message.not_before is not None
    assert await take(world.store) == []
    assert await state_of(world.store, "1") is MessageState.WAITING


async def test_messages_are_taken_by_number_and_no_more_than_wanted(world: World) -> None:  # E44
    await publish(world.store, "1", "2", "3")
    assert names(await take(world.store, 2)) == ["1", "2"]
    assert names(await take(world.store, 2)) == ["3"]


async def test_several_topics_are_taken_together_and_others_are_left(world: World) -> None:  # E44
    for number, topic in enumerate(("orders", "bills", "else", "orders", "bills")):
        await publish(world.store, str(number), topic=topic)
    taken = await world.store.outbox.take({"orders": False, "bills": True}, 3, SPAN)
    assert names(taken) == ["0", "1", "3"]
    taken = await world.store.outbox.take({"orders": False, "bills": True}, 3, SPAN)
    assert names(taken) == ["4"]
    assert await world.store.outbox.take({}, 3, SPAN) == []
    assert names(await take(world.store, topic="else")) == ["2"]


async def test_of_two_who_take_at_once_each_has_others(world: World) -> None:  # E44
    await world.store.outbox.publish([a_message(f"{n}") for n in range(100)])
    async with another(world) as other:
        both = await asyncio.gather(*(take(store, 10) for store in (world.store, other) * 5))
    taken = [name for some in both for name in names(some)]
    assert sorted(taken) == sorted(f"{n}" for n in range(100))


async def test_a_relay_that_is_heard_of_no_more_loses_its_messages_to_another(world: World) -> None:  # E44
    await publish(world.store, "1", "2")
    frozen = await take(world.store)
    await world.advance("29s")
    assert await take(world.store) == []
    await world.advance("1s")
    taken = await take(world.store)
    assert names(taken) == ["1", "2"]
    assert all(new.epoch > old.epoch for new, old in zip(taken, frozen, strict=True))


async def test_what_was_taken_by_another_since_is_left_alone(world: World) -> None:  # E44
    await publish(world.store, "1", "2")
    frozen = await take(world.store)
    await world.advance("30s")
    taken = await take(world.store)
    assert await world.store.outbox.delivered(frozen) == 0
    assert await world.store.outbox.put_off(put_off(*frozen, seconds=None)) == 0
    assert await state_of(world.store, "1") is MessageState.WAITING
    assert (await of(world.store, "1")).tries == 0
    assert await world.store.outbox.delivered(taken) == 2
    assert await world.store.outbox.delivered(frozen) == 0
    assert await world.store.outbox.put_off(put_off(*frozen, seconds=1)) == 0
    assert await state_of(world.store, "1") is MessageState.PUBLISHED


async def test_what_nobody_took_since_is_published_although_its_time_is_up(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2", "1")
    late = await take(world.store)
    await world.advance("31s")
    assert names(await take(world.store, 1)) == ["a1"]  # the others are in line again
    assert await world.store.outbox.delivered(late) == 2
    assert await state_of(world.store, "a2") is MessageState.PUBLISHED
    assert await state_of(world.store, "a1") is MessageState.WAITING


async def test_a_made_up_epoch_publishes_nothing(world: World) -> None:  # E44
    await publish(world.store, "1")
    message = await of(world.store, "1")
    for epoch in (-1, 99):
        assert await world.store.outbox.delivered([Taken(message, epoch)]) == 0
        assert await world.store.outbox.put_off(put_off(Taken(message, epoch), seconds=9)) == 0
    assert names(await take(world.store)) == ["1"]


async def test_a_published_message_tells_when(world: World) -> None:  # E44
    await publish(world.store, "1")
    await world.advance("5s")
    await drain(world.store)
    kept = await of(world.store, "1")
    assert kept.settled_at is not None
    assert kept.settled_at - kept.created_at >= timedelta(seconds=5)
    assert kept.not_before is None


async def test_delivered_and_told_again_it_is_the_same_answer(world: World) -> None:  # E44
    await publish(world.store, "1", "2")
    taken = await take(world.store)
    assert await world.store.outbox.delivered(taken[:1]) == 1
    assert await world.store.outbox.delivered(taken) == 2


async def test_a_message_that_is_put_off_comes_again_after_its_wait(world: World) -> None:  # E44
    await publish(world.store, "1")
    taken = await take(world.store)
    assert await world.store.outbox.put_off(put_off(*taken, seconds=40)) == 1
    assert await world.store.outbox.put_off(put_off(*taken, seconds=40)) == 1  # its answer was lost
    kept = await of(world.store, "1")
    assert (kept.tries, kept.error, kept.state) == (1, "refused", MessageState.WAITING)
    await world.advance("39s")
    assert await take(world.store) == []
    await world.advance("1s")
    [again] = await take(world.store)
    assert (again.message.tries, again.message.error) == (1, "refused")
    await world.store.outbox.put_off(put_off(again, seconds=0, error="refused too"))
    [third] = await take(world.store)
    assert (third.message.tries, third.message.error) == (2, "refused too")


async def test_what_was_not_tried_counts_no_try_and_keeps_its_error(world: World) -> None:  # E44
    await publish(world.store, "1")
    await world.store.outbox.put_off(put_off(*await take(world.store), seconds=0, error="refused"))
    await world.store.outbox.put_off(put_off(*await take(world.store), seconds=0, error="", tried=False))
    [taken] = await take(world.store)
    assert (taken.message.tries, taken.message.error) == (1, "refused")


async def test_tries_that_do_not_reach_the_target_are_counted_apart_and_once(
    world: World,
) -> None:  # G2
    await publish(world.store, "1")
    for _ in range(3):
        [taken] = await take(world.store)
        away = PutOff(taken, timedelta(), "cannot be reached", tried=False, away=True)
        for _ in range(2):  # its answer was lost
            assert await world.store.outbox.put_off([away]) == 1
    [taken] = await take(world.store)
    assert (taken.message.tries, taken.message.unreached) == (0, 3)
    await world.store.outbox.delivered([taken])
    assert ((await of(world.store, "1")).tries, (await of(world.store, "1")).unreached) == (0, 3)
    [listed] = await world.store.outbox.messages(topic=TOPIC)
    assert listed.unreached == 3
    await world.store.outbox.replay(TOPIC, listed.number, listed.number, 1)
    assert (await of(world.store, "1")).unreached == 0


async def test_a_message_that_no_try_can_help_is_parked_with_the_reason(world: World) -> None:  # E44
    await publish(world.store, "1")
    taken = await take(world.store)
    for _ in range(2):
        assert await world.store.outbox.put_off(put_off(*taken, seconds=None, error="no route")) == 1
    kept = await of(world.store, "1")
    assert (kept.state, kept.tries, kept.error) == (MessageState.PARKED, 1, "no route")
    assert kept.settled_at is not None
    await world.advance("1d")
    assert await take(world.store) == []
    assert await world.store.outbox.next_due([TOPIC]) is None


async def test_a_person_parks_what_waits_and_nothing_else(world: World) -> None:  # E44
    await publish(world.store, "1", "2")
    assert await world.store.outbox.park("1", "it is wrong")
    assert not await world.store.outbox.park("1", "once more")
    assert not await world.store.outbox.park("nobody", "x")
    assert (await of(world.store, "1")).error == "it is wrong"
    assert await drain(world.store) == ["2"]
    assert not await world.store.outbox.park("2", "too late")
    assert await state_of(world.store, "2") is MessageState.PUBLISHED


async def test_what_left_while_a_person_parked_it_has_left(world: World) -> None:  # E44
    await publish(world.store, "1", "2")
    one, two = await take(world.store)
    for name in ("1", "2"):
        assert await world.store.outbox.park(name, "stop it")
    assert await world.store.outbox.put_off(put_off(one, seconds=1)) == 0
    assert await state_of(world.store, "1") is MessageState.PARKED
    assert await world.store.outbox.delivered([two]) == 1
    assert await state_of(world.store, "2") is MessageState.PUBLISHED


async def test_a_person_gives_up_what_is_parked_and_nothing_else(world: World) -> None:  # E44
    await publish(world.store, "1", "2")
    assert not await world.store.outbox.discard(["1"], "ann", "it waits")
    assert not await world.store.outbox.discard(["nobody"], "ann", "x")
    await world.store.outbox.park("1", "no route")
    assert await world.store.outbox.discard(["1"], "ann", "the customer is gone")
    assert not await world.store.outbox.discard(["1"], "ann", "once more")
    assert await world.store.outbox.messages(message_id="1") == []
    [told] = [
        event for event in await world.store.queries.events(after=0, limit=10) if event.kind == "discarded"
    ]
    assert (told.job_id, told.meta) == (
        "",
        {"message": "1", "topic": TOPIC, "error": "no route", "by": "ann", "reason": "the customer is gone"},
    )
    assert await drain(world.store) == ["2"]
    assert not await world.store.outbox.discard(["2"], "ann", "too late")
    assert await state_of(world.store, "2") is MessageState.PUBLISHED
    assert await read_lags(world.store) == []


async def test_several_are_given_up_at_once_with_an_event_each(world: World) -> None:  # E44
    await publish(world.store, "1", "2", "3", "4")
    for name in ("1", "2", "4"):
        await world.store.outbox.park(name, "no route")
    given = ["1", "2", "3", "unknown"]
    assert await world.store.outbox.discard(given, "relay", "too late") == 2
    assert await world.store.outbox.discard(given, "relay", "too late") == 0
    assert await world.store.outbox.discard([], "relay", "too late") == 0
    gone = [event.meta["message"] for event in await world.store.queries.events(after=0, limit=10)]
    assert sorted(gone) == ["1", "2"]
    assert await state_of(world.store, "4") is MessageState.PARKED
    assert await drain(world.store) == ["3"]


async def test_what_is_discarded_lets_up_those_behind_it_also_in_a_strict_topic(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2")
    await world.store.outbox.park("a1", "no route")
    assert await take(world.store, strict=True) == []
    assert await world.store.outbox.discard(["a1"], "ann", "x")
    assert names(await take(world.store, strict=True)) == ["a2"]


async def test_how_long_until_the_next_one(world: World) -> None:  # E44
    assert await world.store.outbox.next_due([TOPIC]) is None
    await publish(world.store, "1", "2")
    assert await world.store.outbox.next_due([TOPIC]) == timedelta()
    assert await world.store.outbox.next_due(["bills"]) is None
    assert await world.store.outbox.next_due([]) is None
    one, two = await take(world.store)
    await world.store.outbox.put_off(put_off(one, seconds=20))
    ahead = await world.store.outbox.next_due(["bills", TOPIC])
    assert ahead is not None
    assert timedelta(seconds=15) < ahead <= timedelta(seconds=20)
    await world.store.outbox.delivered([two])
    await world.advance("20s")
    assert await world.store.outbox.next_due([TOPIC]) == timedelta()


async def test_lags_tell_what_waits_what_is_parked_and_for_how_long(world: World) -> None:  # E44
    assert await read_lags(world.store) == []
    await publish(world.store, "1", "2", "3")
    await world.advance("1m")
    await publish(world.store, "4")
    await publish(world.store, "5", topic="bills")
    await world.store.outbox.delivered(await take(world.store, 1))
    await world.store.outbox.put_off(put_off(*await take(world.store, 1), seconds=3600))
    await world.store.outbox.park("5", "x")
    bills, orders = await read_lags(world.store)
    assert bills == ("bills", 0, 1, None)
    assert orders[:3] == ("orders", 3, 0)
    assert orders.oldest is not None
    assert timedelta(minutes=1) <= orders.oldest < timedelta(minutes=2)
    await world.store.outbox.park("2", "x")
    await world.store.outbox.park("3", "x")
    orders = (await read_lags(world.store))[1]
    assert orders[:3] == ("orders", 1, 2)
    assert orders.oldest is not None
    assert orders.oldest < timedelta(minutes=1)


async def test_messages_are_listed_by_number_page_by_page(world: World) -> None:  # E44
    await publish(world.store, "a1", "2", "a3", "4")
    await publish(world.store, "a5", topic="bills")
    await world.store.outbox.delivered(await take(world.store, 1))
    await world.store.outbox.park("4", "x")
    seen = list[str]()
    after: int | None = None
    while page := await world.store.outbox.messages(after=after, limit=2):
        seen += [message.id for message in page]
        after = page[-1].number
    assert seen == ["a1", "2", "a3", "4", "a5"]

    async def ids(**where: object) -> list[str]:
        return [message.id for message in await world.store.outbox.messages(**where)]  # type: ignore[arg-type]

    assert await ids(topic="orders") == ["a1", "2", "a3", "4"]
    assert await ids(state=MessageState.WAITING) == ["2", "a3", "a5"]
    assert await ids(state=MessageState.PUBLISHED) == ["a1"]
    assert await ids(state=MessageState.PARKED, topic="orders") == ["4"]
    assert await ids(key="a") == ["a1", "a3", "a5"]
    assert await ids(key="a", topic="bills", state=MessageState.WAITING) == ["a5"]
    assert await ids(key="z") == []


async def test_published_messages_are_forgotten_after_their_time_and_no_others(world: World) -> None:  # E44
    day = timedelta(days=1)
    await publish(world.store, "1", "2", "3", "4", "5")
    await world.store.outbox.delivered(await take(world.store, 3))
    await world.store.outbox.park("4", "x")
    await world.advance("23h")
    assert await world.store.outbox.forget(day, 10) == 0
    await world.advance("1h")
    assert await world.store.outbox.forget(day, 2) == 2
    assert await world.store.outbox.forget(day, 2) == 1
    assert await world.store.outbox.forget(day, 2) == 0
    assert [message.id for message in await world.store.outbox.messages()] == ["4", "5"]


async def test_a_number_is_not_used_again_after_its_message_was_forgotten(world: World) -> None:  # E44
    await publish(world.store, "1")
    number = (await of(world.store, "1")).number
    await drain(world.store)
    assert await world.store.outbox.forget(timedelta(), 10) == 1
    await publish(world.store, "2")
    assert (await of(world.store, "2")).number > number


@pytest.mark.parametrize("world", ["memory", "sqlite", "postgres", "postgres18"], indirect=True)
async def test_who_waits_is_woken_by_a_message(world: World) -> None:  # E44
    async with another(world) as other, asyncio.timeout(20):
        waiting = asyncio.create_task(world.store.outbox.wait([TOPIC], 60))
        await asyncio.sleep(0)
        while not waiting.done():  # a listener may need a moment to stand
            await other.outbox.publish([a_message()])
            await asyncio.wait([waiting], timeout=0.2)
    assert await take(world.store)


async def test_what_is_published_before_the_wait_is_not_missed(world: World) -> None:  # E44
    await drain(world.store)
    await publish(world.store, "1")
    async with asyncio.timeout(20):
        await world.store.outbox.wait([TOPIC], 60)


async def test_each_of_several_who_wait_is_told(world: World) -> None:  # E44
    async with asyncio.timeout(20):
        for topics in ([TOPIC], ["bills"]):  # they know each other's names, as routes of one process do
            await world.store.outbox.wait(topics, 0)
        await publish(world.store, "1")
        await publish(world.store, "2", topic="bills")
        await world.store.outbox.wait([TOPIC], 60)
        await world.store.outbox.wait(["bills"], 60)


async def test_the_wait_ends_by_itself(world: World) -> None:  # E44
    async with asyncio.timeout(20):
        waiting = asyncio.create_task(world.store.outbox.wait([TOPIC], 0.05))
        await asyncio.sleep(0)
        await world.advance("1s")  # where it waits by our clock
        await waiting

"""The order of messages: by number within a key, whoever takes them, whatever fails; and replaying them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random

from holdfast.engine.ports import Store
from holdfast.outbox.lags import read_lags
from holdfast.outbox.model import MessageState
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


async def test_messages_of_one_key_are_taken_together_in_order(world: World) -> None:  # E44
    await publish(world.store, "a1", "b1", "a2", "a3")
    assert names(await take(world.store)) == ["a1", "b1", "a2", "a3"]


async def test_nothing_of_a_key_is_taken_while_an_older_one_is_in_hand(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2", "b1", "3")
    first = await take(world.store, 1)
    assert names(await take(world.store)) == ["b1", "3"]
    await publish(world.store, "a3")
    assert await take(world.store) == []
    await world.store.outbox.delivered(first)
    assert names(await take(world.store)) == ["a2", "a3"]


async def test_a_message_that_is_put_off_holds_up_its_key_and_no_other(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2", "b1")
    [a1, *others] = await take(world.store)
    await world.store.outbox.put_off(put_off(a1, seconds=60))
    await world.store.outbox.put_off(put_off(*others, seconds=0, error="", tried=False))
    await publish(world.store, "a3", "b2")
    assert await drain(world.store) == ["b1", "b2"]
    assert await world.store.outbox.next_due([TOPIC]) != timedelta()
    await world.advance("59s")
    assert await drain(world.store) == []
    await world.advance("1s")
    assert await drain(world.store) == ["a1", "a2", "a3"]


async def test_keys_of_other_topics_are_other_keys(world: World) -> None:  # E44
    await publish(world.store, "a1")
    await publish(world.store, "a2", topic="bills")
    await world.store.outbox.put_off(put_off(*await take(world.store), seconds=60))
    assert names(await take(world.store, topic="bills")) == ["a2"]


async def test_a_parked_message_does_not_hold_up_its_key(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2", "a3")
    [a1] = await take(world.store, 1)
    assert await take(world.store) == []  # they have stepped behind it
    await world.store.outbox.put_off(put_off(a1, seconds=None))
    assert await drain(world.store) == ["a2", "a3"]


async def test_in_a_strict_topic_a_parked_message_holds_up_its_key_until_it_is_replayed(
    world: World,
) -> None:  # E44
    await publish(world.store, "a1", "a2", "b1")
    [a1] = await take(world.store, 1, strict=True)
    await world.store.outbox.put_off(put_off(a1, seconds=None))
    assert await drain(world.store, strict=True) == ["b1"]
    await publish(world.store, "a3")
    assert await drain(world.store, strict=True) == []
    assert (
        await world.store.outbox.next_due([TOPIC]) is None
    )  # nobody asks again and again for what is held up
    await world.store.outbox.replay(TOPIC, a1.message.number, a1.message.number, 10)
    assert await drain(world.store, strict=True) == ["a1", "a2", "a3"]


async def test_a_topic_that_is_strict_no_more_goes_on_by_itself(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2", "a3")
    await world.store.outbox.park("a1", "x")
    assert await drain(world.store, strict=True) == []
    await world.store.outbox.forget(timedelta(days=7), 10)
    assert await drain(world.store) == ["a2", "a3"]


async def test_parking_by_a_person_lets_the_others_of_its_key_go(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2")
    await world.store.outbox.put_off(put_off(*await take(world.store, 1), seconds=60))
    assert await take(world.store) == []
    await world.store.outbox.park("a1", "it is wrong")
    assert await drain(world.store) == ["a2"]


async def test_the_second_of_a_key_cannot_overtake_because_its_wait_is_shorter(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2")
    a1, a2 = await take(world.store)
    await world.store.outbox.put_off([*put_off(a1, seconds=60), *put_off(a2, seconds=1)])
    await world.advance("2s")
    assert await take(world.store) == []
    await world.advance("58s")
    assert await drain(world.store) == ["a1", "a2"]


async def test_many_behind_one_that_waits_do_not_keep_others_from_being_found(world: World) -> None:  # E44
    await publish(world.store, "a1")
    await world.store.outbox.put_off(put_off(*await take(world.store), seconds=60))
    await world.store.outbox.publish([a_message(f"a{n}", key="a") for n in range(2, 1202)])
    await publish(world.store, "b1")
    assert names(await take(world.store, 10)) == ["b1"]
    assert await world.store.outbox.next_due([TOPIC]) != timedelta()
    await world.advance("60s")
    gone = await drain(world.store, 250)
    assert gone == ["a1", "b1", *(f"a{n}" for n in range(2, 1202))] or gone == [
        *(f"a{n}" for n in range(1, 1202)),
        "b1",
    ]


async def test_a_thousand_messages_are_drained_in_order(world: World) -> None:  # E44
    keys = Random(7).choices(["a", "b", "c", None], k=1000)
    for start in range(0, 1000, 250):
        some = range(start, start + 250)
        await world.store.outbox.publish([a_message(f"{n}", key=keys[n]) for n in some])
    gone = [int(name) for name in await drain(world.store)]
    assert gone == list(range(1000))
    assert await read_lags(world.store) == []


async def test_relays_beside_each_other_keep_the_order_of_every_key(world: World) -> None:  # E44
    """Each takes, thinks for a moment, fails now and then; what the target sees of a key is in order and all of it."""
    keys, each = "abcd", 30
    await world.store.outbox.publish(
        [a_message(f"{key}{n}", key=key) for n in range(each) for key in keys]
        + [a_message(f"{n}") for n in range(40)]
    )
    target: list[str] = []

    async def relay(store: Store, chance: Random) -> None:
        while (ahead := await store.outbox.next_due([TOPIC])) is not None:
            taken = await take(store, 7)
            if not taken:
                await asyncio.sleep(min(ahead.total_seconds(), 0.005))
                continue
            failed: set[str | None] = set()
            for one in taken:
                await asyncio.sleep(0)
                key = one.message.key
                if key is not None and (key in failed or chance.random() < 0.05):
                    failed.add(key)
                    await store.outbox.put_off(put_off(one, seconds=0))
                else:
                    target.append(one.message.id)
                    assert await store.outbox.delivered([one]) == 1

    async with another(world) as other, asyncio.timeout(60):
        await asyncio.gather(
            *(relay(store, Random(n)) for n, store in enumerate((world.store, other, other)))
        )
    for key in keys:
        assert [name for name in target if name[0] == key] == [f"{key}{n}" for n in range(each)]
    assert len(target) == len(set(target)) == each * len(keys) + 40


# -- replaying --------------------------------------------------------------------------------------------------------
async def test_published_and_parked_messages_are_replayed_by_range(world: World) -> None:  # E44
    await publish(world.store, "1", "2", "3", "4", "5")
    await publish(world.store, "6", topic="bills")
    numbers = {name: (await of(world.store, name)).number for name in "123456"}
    await world.store.outbox.park("3", "x")
    await world.store.outbox.delivered(await take(world.store, 3))
    await world.store.outbox.delivered(await take(world.store, topic="bills"))
    await world.advance("1m")
    replayed = await world.store.outbox.replay(TOPIC, numbers["2"], numbers["6"], 10)
    assert replayed == (3, None)  # 5 was not published yet
    kept = await of(world.store, "3")
    assert (kept.number, kept.state, kept.tries, kept.error) == (
        numbers["3"],
        MessageState.WAITING,
        0,
        None,
    )
    assert kept.settled_at is None
    [lag] = await read_lags(world.store)
    assert lag[:3] == (TOPIC, 4, 0)
    assert await drain(world.store) == ["2", "3", "4", "5"]
    assert await state_of(world.store, "6") is MessageState.PUBLISHED


async def test_a_replay_counts_as_waiting_from_when_it_was_asked_for(world: World) -> None:  # E44
    await publish(world.store, "1")
    await drain(world.store)
    await world.advance("1d")
    await world.store.outbox.replay(TOPIC, 0, 2**63 - 1, 10)
    [lag] = await read_lags(world.store)
    assert lag.oldest is not None
    assert lag.oldest < timedelta(minutes=1)


async def test_a_replay_goes_on_where_it_was_although_its_first_are_published_again(
    world: World,
) -> None:  # E44
    await world.store.outbox.publish([a_message(f"{n}") for n in range(5)])
    first, last = (await of(world.store, "0")).number, (await of(world.store, "4")).number
    await drain(world.store)
    one = await world.store.outbox.replay(TOPIC, first, last, 2)
    assert (one.done, one.next) == (2, first + 2)
    assert await drain(world.store) == ["0", "1"]
    two = await world.store.outbox.replay(TOPIC, first + 2, last, 2)
    assert (two.done, two.next) == (2, first + 4)
    assert await world.store.outbox.replay(TOPIC, first + 4, last, 2) == (1, None)
    assert await world.store.outbox.replay(TOPIC, first + 2, last, 2) == (0, None)  # they wait
    assert await world.store.outbox.replay("nothing", first, last, 2) == (0, None)
    assert await drain(world.store) == ["2", "3", "4"]


async def test_who_took_it_before_the_replay_has_no_say_after_it(world: World) -> None:  # E44
    await publish(world.store, "1")
    before = await take(world.store)
    await world.store.outbox.delivered(before)
    await world.store.outbox.replay(TOPIC, 0, 2**63 - 1, 10)
    assert await world.store.outbox.delivered(before) == 0
    assert await world.store.outbox.put_off(put_off(*before, seconds=None)) == 0
    assert await drain(world.store) == ["1"]


async def test_a_replayed_message_goes_before_younger_ones_of_its_key(world: World) -> None:  # E44
    await publish(world.store, "a1", "a2")
    await world.store.outbox.delivered(await take(world.store, 1))
    await publish(world.store, "a3")
    await world.store.outbox.replay(TOPIC, 0, 2**63 - 1, 10)
    assert await drain(world.store, 1) == ["a1", "a2", "a3"]


# -- names ------------------------------------------------------------------------------------------------------------
ODD = ["ß", "日本", "🧵", "a'b\"c;--", "%s $1 ?", "\u0301", "x" * 200, "{}", "NULL", "a b"]


async def test_odd_names_are_kept_and_found(world: World) -> None:  # E44
    for name in ODD:
        for number in range(2):
            await world.store.outbox.publish([a_message(f"{name[:150]}{number}", topic=name, key=name)])
        taken = await take(world.store, 1, topic=name)
        assert (taken[0].message.topic, taken[0].message.key) == (name, name)
        assert await take(world.store, topic=name) == []
        await world.store.outbox.delivered(taken)
        assert names(await take(world.store, topic=name)) == [f"{name[:150]}1"]
        assert [message.key for message in await world.store.outbox.messages(topic=name, key=name)] == [
            name
        ] * 2
    assert [lag.topic for lag in await read_lags(world.store)] == sorted(ODD)


async def test_a_large_body_comes_back_whole(world: World) -> None:  # E44
    body = Random(1).randbytes(1024 * 1024)
    await world.store.outbox.publish([a_message("1", body=body)])
    [taken] = await world.store.outbox.take({TOPIC: False}, 1, SPAN)
    assert taken.message.body == body
    await world.store.outbox.delivered([taken])
    assert (await of(world.store, "1")).body == body

"""The relay on every store, with a target in memory that behaves as it is told to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.health.judgement import Thresholds
from holdfast.outbox.model import Delivered, Delivery, Lag, Message, MessageState, Undelivered
from holdfast.outbox.relay import pauses, relay, route
from holdfast.outbox.relay.relay import StaleMessages
from holdfast.outbox.transports.memory import Box, box

TOPIC = "orders"


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Box:
    found = box(request.node.name)
    found.clear()
    return found


@pytest.fixture
async def app(request: pytest.FixtureRequest, store_url: str, target: Box) -> AsyncIterator[Holdfast]:
    made = Holdfast(store_url, outbox_poll="200ms")
    made.topic(TOPIC, to=f"memory://{request.node.name}", base="20ms", cap="100ms", max_tries=4)
    made.topic(
        "strict", to=f"memory://{request.node.name}", base="20ms", cap="100ms", max_tries=2, strict=True
    )
    async with made:
        yield made


async def relayed(app: Holdfast, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        await app.outbox.run_relay(until_idle=True)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.01)


def bodies(messages: list[Message]) -> list[str]:
    return [message.body.decode().strip('"') for message in messages]


def failing(target: Box, times: dict[str, int], failure: Undelivered) -> None:
    """Messages with these bodies are refused so many times."""

    def answer(message: Message) -> Delivery:
        [body] = bodies([message])
        if times.get(body, 0):
            times[body] -= 1
            return failure
        return Delivered()

    target.answer = answer


async def test_everything_arrives_once_and_in_order_of_its_key(app: Holdfast, target: Box) -> None:  # E44
    for n in range(130):
        await app.outbox.publish(TOPIC, f"{n % 3}-{n}", key=str(n % 3))
    await relayed(app)
    by_key: dict[str | None, list[int]] = defaultdict(list)
    for message in target.messages:
        by_key[message.key].append(message.number)
    assert len(target.messages) == 130
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert await app.outbox.list(state="waiting") == []
    assert len(await app.outbox.list(state="published", limit=200)) == 130


async def test_one_that_is_refused_holds_up_its_key_and_nobody_else(
    app: Holdfast, target: Box
) -> None:  # E44
    failing(target, {"a1": 3}, Undelivered("not now"))
    for body in ("a1", "a2", "b1", "a3", "b2"):
        await app.outbox.publish(TOPIC, body, key=body[0])
    await app.outbox.publish(TOPIC, "no key")
    await relayed(app)
    arrived = bodies(target.messages)
    assert sorted(arrived) == ["a1", "a2", "a3", "b1", "b2", "no key"]
    assert [body for body in arrived if body[0] == "a"] == ["a1", "a2", "a3"]
    assert arrived.index("b2") < arrived.index("a1")
    tries = {bodies([one])[0]: one.tries for one in await app.outbox.list()}
    assert tries["a2"] == 0  # it was never tried while it stood behind


async def test_a_poison_message_is_parked_with_its_reason_and_lets_others_pass(  # E44
    app: Holdfast, target: Box
) -> None:
    failing(target, {"a1": 99}, Undelivered("unroutable: nobody wants it", lasting=True))
    for body in ("a1", "a2"):
        await app.outbox.publish(TOPIC, body, key="a")
    await relayed(app)
    assert bodies(target.messages) == ["a2"]
    [parked] = await app.outbox.list(state="parked")
    assert (bodies([parked]), parked.error, parked.tries) == (["a1"], "unroutable: nobody wants it", 1)
    target.clear()
    await app.outbox.replay(parked.id)
    await relayed(app)
    assert bodies(target.messages) == ["a1"]


async def test_tries_are_bounded_and_the_last_error_is_kept(app: Holdfast, target: Box) -> None:  # E44
    failing(target, {"a": 99}, Undelivered("it is always wrong"))
    await app.outbox.publish(TOPIC, "a")
    await relayed(app)
    [parked] = await app.outbox.list()
    assert (parked.state, parked.tries, parked.error) == (MessageState.PARKED, 4, "it is always wrong")


async def test_in_a_strict_topic_a_parked_message_holds_up_its_key(app: Holdfast, target: Box) -> None:  # E44
    failing(target, {"a1": 99}, Undelivered("no", lasting=True))
    for body in ("a1", "a2", "b1"):
        await app.outbox.publish("strict", body, key=body[0])
    await relayed(app)
    assert bodies(target.messages) == ["b1"]
    target.clear()
    [parked] = await app.outbox.list(state="parked")
    await app.outbox.replay(parked.id)
    await relayed(app)
    assert bodies(target.messages) == ["a1", "a2"]


async def test_while_the_target_is_away_nothing_is_lost_blamed_or_blocked(  # E44
    app: Holdfast, target: Box
) -> None:
    asked = 0

    def away(message: Message) -> Delivery:
        nonlocal asked
        asked += 1
        return Undelivered("nobody there", away=True)

    target.answer = away
    for n in range(70):
        await app.outbox.publish(TOPIC, f"m{n}", key="k" if n % 2 else None)
    relaying = asyncio.create_task(app.outbox.run_relay(until_idle=True))

    async def was_asked() -> bool:
        return asked > 40

    await until(was_asked)
    await app.outbox.publish(TOPIC, "meanwhile")  # nobody who publishes waits for a broker
    target.clear()
    async with asyncio.timeout(20):
        await relaying
    assert len(target.messages) == 71
    sent = await app.outbox.list(limit=100)
    assert all(message.tries == 0 for message in sent)
    assert sum(message.unreached for message in sent) >= asked  # how often that was is known
    keyed = [message.number for message in target.messages if message.key]
    assert keyed == sorted(keyed)


async def relay_check(app: Holdfast, **thresholds: Any) -> tuple[str, str]:
    [found] = [one for one in (await app.health(Thresholds(**thresholds))).checks if one.name == "relay"]
    return found.level, found.text


async def test_the_lag_and_what_is_parked_can_be_watched(app: Holdfast, target: Box) -> None:  # E44 E62 E65
    failing(target, {"poison": 9}, Undelivered("no", lasting=True))
    text, _ = await app.metrics.text()
    assert "\nholdfast_outbox_lag_seconds " not in text.decode()
    assert (await relay_check(app))[0] == "pass"
    await app.outbox.publish(TOPIC, "poison")
    await relayed(app)
    level, said = await relay_check(app)
    assert (level, said.split(":")[0]) == ("warn", "1 message is parked")
    await app.outbox.publish("nobody's", "waits")
    level, said = await relay_check(app, outbox_lag=timedelta())
    assert (level, said.partition(" has")[0]) == ("warn", "a message of topic nobody's")
    app.metrics.gauges._stale_at = 0.0
    text, _ = await app.metrics.text()
    assert "\nholdfast_outbox_parked 1.0" in text.decode()
    [lag] = [
        line.split()[1]
        for line in text.decode().splitlines()
        if line.startswith("holdfast_outbox_lag_seconds ")
    ]
    assert 0 < float(lag) < 3600


async def test_a_paused_relay_delivers_nothing_until_it_is_resumed(
    app: Holdfast, target: Box, monkeypatch: pytest.MonkeyPatch
) -> None:  # E27 E44
    for module in (pauses, route):
        monkeypatch.setattr(module, "READ_EVERY", 0.02)
    await app.queues.pause("relay", kind="maintenance", reason="the broker moves", by="ada")
    await app.outbox.publish(TOPIC, "kept")
    await relayed(app)  # it does not wait for the pause to end
    assert target.messages == []
    relaying = asyncio.create_task(app.outbox.run_relay())
    await asyncio.sleep(0.1)
    assert target.messages == []
    assert (await app.outbox.list(state="waiting"))[0].tries == 0
    assert await app.queues.resume("relay", kind="maintenance")
    async with asyncio.timeout(20):
        while bodies(target.messages) != ["kept"]:  # noqa: ASYNC110 - the box tells nobody
            await asyncio.sleep(0.01)
    relaying.cancel()
    await asyncio.gather(relaying, return_exceptions=True)


async def test_two_relays_bring_everything_in_order_of_its_key(app: Holdfast, target: Box) -> None:  # E44
    failing(target, {f"{n}": 1 for n in range(0, 200, 7)}, Undelivered("once"))
    for n in range(200):
        await app.outbox.publish(TOPIC, f"{n}", key=str(n % 10))
    async with asyncio.timeout(30):
        await asyncio.gather(app.outbox.run_relay(until_idle=True), app.outbox.run_relay(until_idle=True))
    assert len({message.id for message in target.messages}) == len(target.messages) == 200
    for key in map(str, range(10)):
        numbers = [message.number for message in target.messages if message.key == key]
        assert numbers == sorted(numbers)


async def test_a_waiting_relay_is_woken_by_a_message(app: Holdfast, target: Box) -> None:  # E44
    """And by the many that were there before it began: a full batch is followed at once."""
    app.runtime.settings = Holdfast("memory://", outbox_poll="1h", outbox_batch=5).runtime.settings
    came = asyncio.Event()
    waiting = [str(n) for n in range(23)]

    def note(message: Message) -> Delivery:
        if bodies([message])[0] not in waiting[:-1]:
            came.set()
        return Delivered()

    target.answer = note
    for body in waiting:
        await app.outbox.publish(TOPIC, body, key="one after another")
    relaying = asyncio.create_task(app.outbox.run_relay())
    async with asyncio.timeout(20):
        await came.wait()
    for body in ("first", "second"):
        came.clear()
        await app.outbox.publish(TOPIC, body)
        async with asyncio.timeout(20):
            await came.wait()
    relaying.cancel()
    await asyncio.gather(relaying, return_exceptions=True)
    assert bodies(target.messages) == [*waiting, "first", "second"]


async def test_a_relay_that_is_told_to_end_gives_back_what_it_has(app: Holdfast, target: Box) -> None:  # E44
    engine = await app.runtime.engine()
    taken = asyncio.Event()
    made = app.runtime.make_relay(engine)

    class Stuck:
        async def open(self) -> None: ...
        async def close(self) -> None: ...
        async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
            taken.set()
            await asyncio.get_running_loop().create_future()
            return []

    made._routes[0]._transport = Stuck()
    await app.outbox.publish(TOPIC, "mine", key="k")
    running = asyncio.create_task(made.run())
    async with asyncio.timeout(20):
        await taken.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    async with asyncio.timeout(20):  # not after thirty seconds
        await app.outbox.run_relay(until_idle=True)
    assert bodies(target.messages) == ["mine"]


async def test_a_transport_that_hangs_or_breaks_costs_a_try_and_not_the_relay(  # E44
    app: Holdfast, target: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "DELIVER_WITHIN", 0.2)
    made = app.runtime.make_relay(await app.runtime.engine())
    real = made._routes[0]._transport
    moods = iter(["hang", "raise"])

    class Moody:
        async def open(self) -> None: ...
        async def close(self) -> None: ...
        async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
            match next(moods, None):
                case "hang":
                    await asyncio.get_running_loop().create_future()
                case "raise":
                    raise ZeroDivisionError
            return await real.deliver(messages)

    made._routes[0]._transport = Moody()
    await app.outbox.publish(TOPIC, "mine")
    async with asyncio.timeout(20):
        await made.run(until_idle=True)
    assert bodies(target.messages) == ["mine"]


async def test_a_store_that_is_away_for_a_moment_does_not_end_the_relay(  # E44
    app: Holdfast, target: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "STORE_REST", 0.01)
    store = (await app.runtime.engine()).store
    left = {"take": 2, "delivered": 3, "next_due": 2, "transact": 1}

    def breaking(part: object, name: str) -> None:
        real = getattr(part, name)

        async def call(*args: object, **options: object) -> object:
            left[name] -= 1
            if left[name] >= 0:
                raise StoreUnavailable("the database is away")
            return await real(*args, **options)

        monkeypatch.setattr(part, name, call)

    for name in left:
        breaking(store if name == "transact" else store.outbox, name)
    await app.outbox.publish(TOPIC, "mine")
    await relayed(app)
    assert bodies(target.messages) == ["mine"]  # once: the mark was repeated, not the message
    assert max(left["take"], left["delivered"]) < 0


def test_a_topic_that_waits_too_long_is_told_of_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E44
    said: list[tuple[str, dict[str, Any]]] = []

    class Ears:
        def warning(self, event: str, **facts: Any) -> None:
            said.append((event, facts))

    monkeypatch.setattr(relay, "log", Ears())
    watch = StaleMessages(frozenset({"a"}), timedelta(seconds=60))
    fresh, stale = timedelta(seconds=59), timedelta(seconds=61)
    lags = [Lag("a", 3, 0, stale), Lag("b", 1, 0, stale), Lag("c", 1, 0, fresh), Lag("d", 0, 2, None)]
    assert watch.check(lags, 0.0) == ["a", "b"]
    assert watch.check(lags, 30.0) == []
    assert watch.check(lags, 60.0) == ["a", "b"]
    assert said[0][0] == "outbox.stale"
    assert said[0][1] | {"hint": ""} == {"topic": "a", "waiting": 3, "oldest_seconds": 61, "hint": ""}
    assert "declares no target" in said[1][1]["hint"]
    assert watch.check([], 61.0) == []
    assert watch.check(lags, 62.0) == ["a", "b"]

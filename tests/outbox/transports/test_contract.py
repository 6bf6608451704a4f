"""One text for every target: what `Transport` promises, with real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.outbox.model import Delivered, Delivery, Undelivered
from holdfast.outbox.transport import Transport
from holdfast.outbox.transports import nats as nats_module
from holdfast.outbox.transports import rabbitmq as rabbit_module
from tests.outbox.transports.benches import Bench, a_bench, a_message, transport_of

SERVERS = {"rabbitmq": "rabbitmq", "redis": "redis_server", "nats": "nats_server"}
pytestmark = pytest.mark.service


KINDS = ["rabbitmq", "redis", "nats", "webhook"]
#: For what is promised of a target that is never away, too.
ALL_KINDS = pytest.mark.parametrize("bench", [*KINDS, "memory"], indirect=True)


@pytest.fixture(params=KINDS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    kind = request.param
    servers = {kind: request.getfixturevalue(SERVERS[kind])} if kind in SERVERS else {}
    async with a_bench(kind, servers) as made:
        yield made


@pytest.fixture
async def transport(bench: Bench) -> AsyncIterator[Transport]:
    made = transport_of(bench)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test need not wait out."""
    monkeypatch.setattr(rabbit_module, "CONFIRM_WITHIN", 0.5)
    monkeypatch.setattr(rabbit_module, "CONNECT_WITHIN", 1.0)
    monkeypatch.setattr(nats_module, "CONFIRM_WITHIN", 0.5)
    monkeypatch.setattr(nats_module, "CONNECT_WITHIN", 1.0)
    monkeypatch.setattr("holdfast.outbox.transports.redis.ANSWER_WITHIN", 0.5)
    monkeypatch.setattr("tests.outbox.transports.benches.ANSWER_WITHIN", 0.5)


def undelivered(answers: list[Delivery]) -> list[Undelivered]:
    found = [answer for answer in answers if isinstance(answer, Undelivered)]
    assert len(found) == len(answers), answers
    return found


async def delivered_in_the_end(transport: Transport, bench: Bench) -> None:
    """A broken connection may cost a try; the relay tries again."""
    message = a_message(bench.topic, b"in the end")
    answer: Delivery | None = None
    for _ in range(20):
        [answer] = await transport.deliver([message])
        if answer == Delivered():
            assert message.id in [
                one.id for one in await bench.arrived()
            ]  # maybe before one that was in doubt
            return
        assert isinstance(answer, Undelivered)
        assert answer.away, answer
        await asyncio.sleep(0.1)
    pytest.fail(f"not delivered: {answer}")


@ALL_KINDS
async def test_what_is_delivered_has_arrived_in_order_with_its_id_headers_and_type(  # E44
    transport: Transport, bench: Bench
) -> None:
    messages = [
        a_message(bench.topic, f"no {n}".encode(), headers={"traceparent": "00-ab-cd-01"}) for n in range(60)
    ]
    messages.append(a_message(bench.topic, b"<a/>", headers={"Content-Type": "application/xml"}))
    for part in ([m] for m in messages) if bench.kind == "webhook" else [messages]:
        assert await transport.deliver(part) == [Delivered()] * len(part)
    arrived = await bench.arrived()
    assert [(one.id, one.body) for one in arrived] == [(one.id, one.body) for one in messages]
    assert arrived[0].headers["traceparent"] == "00-ab-cd-01"
    assert [arrived[0].content_type, arrived[-1].content_type] == ["application/json", "application/xml"]


async def test_a_target_that_is_away_loses_nothing_and_is_used_again_when_it_is_back(  # E44
    transport: Transport, bench: Bench
) -> None:
    bench.proxy.refuse = True
    messages = [a_message(bench.topic), a_message(bench.topic)]
    answers = undelivered(await transport.deliver(messages))
    assert all(answer.away and not answer.lasting for answer in answers)
    assert all("127.0.0.1" in answer.error and "\n" not in answer.error for answer in answers)
    bench.proxy.heal()
    await delivered_in_the_end(transport, bench)


async def test_a_cut_connection_is_made_anew(transport: Transport, bench: Bench) -> None:  # E44
    await delivered_in_the_end(transport, bench)
    bench.proxy.reset()
    await delivered_in_the_end(transport, bench)


async def test_a_confirm_that_does_not_come_is_no_delivery(  # E44
    hasty: None, bench: Bench
) -> None:
    transport = transport_of(bench)
    await transport.open()
    try:
        await delivered_in_the_end(transport, bench)
        bench.proxy.black_hole = True
        async with asyncio.timeout(20):
            [answer] = undelivered(await transport.deliver([a_message(bench.topic)]))
        assert answer.away
        bench.proxy.heal()
        await delivered_in_the_end(transport, bench)
    finally:
        await transport.close()


async def test_a_delivery_that_is_cancelled_leaves_the_transport_usable(  # E44
    transport: Transport, bench: Bench
) -> None:
    await delivered_in_the_end(transport, bench)
    bench.proxy.black_hole = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await transport.deliver([a_message(bench.topic)])
    bench.proxy.heal()
    await delivered_in_the_end(transport, bench)


@ALL_KINDS
async def test_deliveries_may_overlap(transport: Transport, bench: Bench) -> None:  # E44
    batches = [[a_message(bench.topic) for _ in range(20)] for _ in range(4)]
    answers = await asyncio.gather(*(transport.deliver(batch) for batch in batches))
    assert answers == [[Delivered()] * 20] * 4
    assert {one.id for one in await bench.arrived()} == {one.id for batch in batches for one in batch}


@pytest.mark.parametrize(
    "headers",
    [
        {"x-a": "1\r\nx-evil: 1"},
        {"x\r\nevil": "1"},
        {"content-type": "a\r\nx-evil: 1"},
        {"": "1"},
        {"x-a": "\x00"},
    ],
    ids=["value", "name", "type", "empty", "nul"],
)
async def test_a_header_cannot_become_two(  # E44
    transport: Transport, bench: Bench, headers: dict[str, str]
) -> None:
    good = a_message(bench.topic, b"good")
    evil = a_message(bench.topic, b"evil", headers=headers)
    first, second = await transport.deliver([evil, good])
    assert second == Delivered()
    if isinstance(first, Undelivered):
        assert first.lasting
    for one in await bench.arrived():
        assert "x-evil" not in one.headers


@pytest.mark.parametrize("bench", SERVERS, indirect=True)
async def test_a_wrong_password_is_told_in_one_line_without_it(bench: Bench) -> None:
    wrong = bench.address.replace(bench.password, "wr0ng-password")
    transport = transport_of(bench, wrong)
    await transport.open()
    try:
        [answer] = undelivered(await transport.deliver([a_message(bench.topic)]))
    finally:
        await transport.close()
    assert answer.away
    assert "user or password" in answer.error
    assert "wr0ng" not in answer.error


async def test_no_error_says_the_password(transport: Transport, bench: Bench) -> None:
    bench.proxy.refuse = True
    [answer] = undelivered(await transport.deliver([a_message(bench.topic)]))
    assert bench.password not in answer.error
    assert bench.password not in repr(transport)

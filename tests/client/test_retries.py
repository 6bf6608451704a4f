"""What a client does when things go wrong on the way: what may be sent again is, within bounds, and never done twice."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast.client import RequestRetries, calls, errors
from holdfast.client.errors import ClientError, RateLimited, Unavailable, Unreachable
from holdfast.client.event_stream import StreamReader
from holdfast.client.retries import pause_seconds
from holdfast.errors import UsageError
from tests.client.conftest import Make
from tests.client.world import WAIT, Doorman, Hurried, Live, canned

BUSY = canned(429, '{"code": "RATE_LIMITED", "detail": "slowly"}', "Retry-After: 7")
AWAY = canned(503, '{"code": "UNAVAILABLE", "detail": "not now"}', "Retry-After: 1")
PROXY_AWAY = canned(503, "<h1>Sorry</h1>", media="text/html")
PROXY_LOST = canned(502, "<h1>Bad gateway</h1>", media="text/html")


def test_an_enqueue_whose_answer_was_lost_is_sent_again_and_done_once(make: Make, live: Live) -> None:  # E69
    owner, world = f"lost-{uuid4()}", Hurried()
    with live.doorman() as doorman:
        doorman.orders = [Doorman.LOSE, Doorman.LOSE]
        client = make(doorman.url, environment=world)
        made = client.enqueue("convert", {"pdf": "a"}, owner=owner)
        assert [job.id for job in client.jobs(owner=owner)] == [made.id]
    assert len(doorman.seen) >= 3
    assert world.keys == 1  # one name for all of them
    assert len(world.pauses) == 2


@pytest.mark.parametrize("trouble", [BUSY, AWAY, PROXY_AWAY, PROXY_LOST, Doorman.SHUT])
def test_what_may_be_sent_again_is(make: Make, live: Live, trouble: Any) -> None:  # E69
    world = Hurried()
    with live.doorman() as doorman:
        doorman.orders = [trouble]
        client = make(doorman.url, environment=world)
        assert client.enqueue("convert", {"pdf": "a"}).state == "queued"
    [pause] = world.pauses
    asked = {BUSY: 7, AWAY: 1}.get(trouble, 0)
    assert asked <= pause <= asked + 0.2  # as Retry-After says


@pytest.mark.parametrize("trouble", [AWAY, PROXY_LOST, Doorman.SHUT, Doorman.LOSE])
def test_what_may_have_been_done_and_has_no_name_is_not_sent_again(
    make: Make, live: Live, trouble: Any
) -> None:
    one, other = [live.do(live.app.webhooks.create_inbound()).id for _ in range(2)]
    with live.doorman() as doorman:
        doorman.orders = [trouble]
        client = make(doorman.url, environment=Hurried())
        with pytest.raises((Unreachable, Unavailable)):
            client.send(calls.remove_webhook(one))
        assert len(doorman.seen) == 1
        doorman.orders = [BUSY]  # here nothing was done, and that is certain
        client.send(calls.remove_webhook(other))


def test_a_move_whose_answer_was_lost_is_sent_again_and_made_once(make: Make, live: Live) -> None:  # E37, E69
    job = make().enqueue("convert", {"pdf": "a"}, run_at=datetime.now(UTC) + timedelta(hours=1))
    with live.doorman() as doorman:
        doorman.orders = [Doorman.LOSE, Doorman.LOSE]
        client = make(doorman.url, environment=Hurried())
        assert client.cancel(job.id).state == "cancelled"
        assert len(doorman.seen) == 3
    assert [event.kind for event in make().job_events(job.id)] == ["queued", "cancelled"]


def test_a_secret_whose_answer_was_lost_is_not_made_twice_nor_told_again(
    make: Make, live: Live
) -> None:  # E37, E69
    name = str(uuid4())
    with live.doorman() as doorman:
        doorman.orders = [Doorman.LOSE]
        client = make(doorman.url, environment=Hurried())
        with pytest.raises(errors.SecretShownOnce) as told:
            client.send(calls.create_key(role="viewer", name=name))
    [made] = [key for key in live.do(live.app.keys.list()) if key.name == name]
    assert told.value.facts["made"] == made.id


def test_what_is_still_being_carried_out_is_asked_for_again(make: Make, live: Live) -> None:  # E37, E69
    in_flight = canned(409, '{"code": "IDEMPOTENCY_KEY_IN_FLIGHT", "detail": "wait"}', "Retry-After: 1")
    world = Hurried()
    with live.doorman() as doorman:
        doorman.orders = [in_flight, in_flight]
        assert make(doorman.url, environment=world).enqueue("convert", {"pdf": "a"}).state == "queued"
    assert all(1 <= pause <= 1.2 for pause in world.pauses)
    assert len(world.pauses) == 2


def test_nobody_waits_for_ever_nor_longer_than_he_can(make: Make, live: Live) -> None:
    world, retries = Hurried(), RequestRetries(tries=3)
    with live.doorman() as doorman:
        doorman.orders = [AWAY] * 9
        client = make(doorman.url, environment=world, retries=retries)
        with pytest.raises(Unavailable) as away:
            client.queues()
        assert (len(doorman.seen), away.value.retry_after) == (3, 1)
        doorman.orders = [canned(429, "", "Retry-After: 3600")]
        with pytest.raises(RateLimited) as busy:
            client.queues()
        assert (len(doorman.seen), busy.value.retry_after) == (4, 3600)


def test_a_server_that_is_not_there_is_told_in_one_line(make: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        client = make(f"http://127.0.0.1:{taken.getsockname()[1]}", environment=Hurried(), key="hf_canary")
        with pytest.raises(Unreachable, match="check that it runs") as unreachable:
            client.cancel("x")
        with pytest.raises(Unreachable):
            next(client.events())
    assert "canary" not in str(unreachable.value)
    assert "\n" not in str(unreachable.value)


@pytest.mark.parametrize(
    "foreign",
    [
        canned(200, "<h1>Hello</h1>", media="text/html"),
        canned(200, "{", media="application/json"),
        canned(200, '{"queues": 5}', media="application/json"),
        canned(302, "", "Location: http://127.0.0.1:1/"),
        canned(404, "<h1>Nothing</h1>", media="text/html"),
        canned(500, "[]", media="application/problem+json"),
    ],
)
def test_an_answer_of_somebody_else_is_known_as_such(make: Make, live: Live, foreign: bytes) -> None:
    with live.doorman() as doorman:
        doorman.orders = [foreign, foreign]
        client = make(doorman.url, environment=Hurried())
        with pytest.raises(errors.BadAnswer):
            client.queues()
        with pytest.raises(errors.BadAnswer):
            next(client.events())
        assert len(doorman.seen) == 2


def test_a_stream_that_is_cut_again_and_again_misses_nothing_and_tells_nothing_twice(
    make: Make, live: Live
) -> None:  # E61, E69
    owner, told = f"cut-{uuid4()}", []
    enqueuing = make()
    first = enqueuing.enqueue("convert", {"pdf": "0"}, owner=owner)
    after = next(iter(enqueuing.job_events(first.id))).id
    with live.doorman() as doorman:
        stream = make(doorman.url, environment=Hurried()).events(after=after, owner=owner, kind="queued")
        for number in range(1, 9):
            doorman.orders = [PROXY_LOST, Doorman.SHUT] if number == 4 else []
            live.cut(doorman)
            made = enqueuing.enqueue("convert", {"pdf": str(number)}, owner=owner)
            told.append((next(stream).job_id, made.id))
        stream.close()
    assert [one for one, _ in told] == [one for _, one in told]


def test_a_stream_that_the_server_will_not_give_any_more_is_an_error(make: Make, live: Live) -> None:
    key, secret = live.do(live.app.keys.create("viewer"))
    with live.doorman() as doorman:
        admin = make()
        stream = make(doorman.url, key=secret, environment=Hurried()).events(after="0", kind="queued")
        admin.enqueue("convert", {"pdf": "a"})
        next(stream)
        admin.send(calls.revoke_key(key.id))
        live.cut(doorman)
        with pytest.raises(errors.Unauthenticated):
            for _ in stream:
                pass


# -- decisions --------------------------------------------------------------------------------------------------------
def pause(error: ClientError, attempt: int = 1, *, sent: bool = True, again: bool = True) -> float | None:
    return pause_seconds(RequestRetries(), attempt, error, was_sent=sent, is_repeatable=again, chance=1.0)


def test_pauses_grow_and_have_a_bound() -> None:
    lost = Unreachable("gone")
    assert [pause(lost, attempt) for attempt in range(1, 6)] == [0.2, 0.4, 0.8, 1.6, None]
    endless = RequestRetries(tries=10_000)
    assert pause_seconds(endless, 9_999, lost, was_sent=True, is_repeatable=True, chance=0) == 15
    assert pause(lost, again=False) is None
    assert pause(lost, again=False, sent=False) == 0.2
    assert pause(errors.NotFound({"status": 404, "code": "NOT_FOUND"})) is None


@pytest.mark.parametrize(
    "bad", [{"tries": 0}, {"base_seconds": -1}, {"base_seconds": 60}, {"stream_tries": 0}]
)
def test_patience_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        RequestRetries(**bad)


def sent(number: int, text: str = "x") -> bytes:
    data = {"event": "queued", "job_id": "j", "meta": {"text": text}}
    told = json.dumps({"time": "2026-01-01T00:00:00Z", "data": data}, ensure_ascii=False)
    return f"id: {number}\ndata: {told}\n\n".encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_from_pieces_of_any_size(size: int) -> None:
    text = "\u2028 \x85 ü 🙂"  # ends of lines to some, characters here
    whole = b"retry: 3000\n: beat\nid: 5\n\n" + sent(6, text) + b"event: reset\r\nid: 9\r\ndata: {}\r\n\r\n"
    reader, found = StreamReader(), []
    for place in range(0, len(whole), size):
        found += reader.feed(whole[place : place + size])
    assert [(one.id, one.kind) for one in found] == [("6", "queued"), ("9", "reset")]
    assert found[0].meta == {"text": text}
    assert (reader.last, reader.retry_seconds) == ("9", 3.0)


def test_what_was_cut_off_was_not_told_wherever_the_cut_was() -> None:
    whole = sent(6)
    for place in range(len(whole)):
        reader = StreamReader()
        assert len(reader.feed(sent(5) + whole[:place])) == 1
        assert reader.last == "5"
        reader.begin()
        [event] = reader.feed(whole)
        assert (event.id, event.kind) == ("6", "queued")


def test_a_client_waits_no_longer_than_it_was_told(make: Make) -> None:
    world = Hurried()
    client = make(environment=world)
    job = client.enqueue("convert", {"pdf": "a"}, delay="1h")
    with pytest.raises(TimeoutError, match="after 300ms"):
        client.wait(job.id, timeout="300ms")
    assert max(world.pauses) <= 0.3
    client.cancel(job.id)
    assert client.wait(job.id, timeout=WAIT).state == "cancelled"

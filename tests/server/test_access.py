"""Keys: how they are read, remembered and forgotten, and who needs none."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.engine.access import Role
from holdfast.engine.keys import digest_of
from holdfast.engine.tables import access_keys
from holdfast.engine.tables.sql import Transacts
from holdfast.errors import UsageError
from holdfast.server import api
from holdfast.server.access import CACHED_FOR, LOOK_UPS, RECORD_USES_EVERY
from holdfast.testing import ManualClock
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio


def timed_house(**options: object) -> tuple[House, ManualClock]:
    clock = ManualClock()
    return new_house(new_app(clock=clock), clock=clock, **options), clock


async def status(house: House, secret: str | None, host: str = "192.0.2.1", **headers: str) -> int:
    given = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    async with house.client(host, headers=given | headers) as client:
        return (await client.get(f"{API}/workers")).status_code


async def test_a_key_ends_with_its_time_and_when_it_is_revoked() -> None:  # E66
    house, clock = timed_house()
    brief = await house.key(Role.ADMIN, lasts=timedelta(seconds=2))
    assert await status(house, brief) == 200
    clock.advance(2)  # sooner than what is remembered of it is forgotten
    assert await status(house, brief) == 401

    lasting = await house.key(Role.ADMIN)
    assert await status(house, lasting) == 200
    store = (await house.app.runtime.engine()).store
    [key] = [one for one in await access_keys.every(store) if one.expires_at is None]
    assert await access_keys.revoke(store, key.id)
    clock.advance(CACHED_FOR)
    assert await status(house, lasting) == 401


async def test_during_a_rotation_both_keys_are_good() -> None:  # E66
    house, clock = timed_house()
    old, new = await house.key(Role.ADMIN), await house.key(Role.ADMIN)
    store = (await house.app.runtime.engine()).store
    assert await access_keys.revoke(store, (await access_keys.every(store))[0].id, after=timedelta(hours=1))
    assert (await status(house, old), await status(house, new)) == (200, 200)
    clock.advance("61m")
    assert (await status(house, old), await status(house, new)) == (401, 200)


async def test_keys_are_asked_for_once_and_their_use_is_written_down_in_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E66
    house, clock = timed_house()
    secret = await house.key(Role.ADMIN)
    store = (await house.app.runtime.engine()).store
    calls = {"find": 0, "mark_used": 0}
    for name in calls:
        kept = getattr(access_keys, name)

        async def counted(*args: object, name: str = name, kept: object = kept) -> object:
            calls[name] += 1
            return await kept(*args)  # type: ignore[operator]

        monkeypatch.setattr(access_keys, name, counted)
    for _ in range(50):
        assert await status(house, secret) == 200
    assert calls == {"find": 1, "mark_used": 1}
    clock.advance(RECORD_USES_EVERY)
    assert await status(house, secret) == 200
    assert calls == {"find": 2, "mark_used": 2}
    [key] = await access_keys.every(store)
    assert key.last_used_at == clock.now()


async def test_who_guesses_keys_is_refused_and_locks_out_nobody_behind_the_same_address() -> None:  # E66
    house, clock = timed_house()
    good, other = await house.key(Role.ADMIN), await house.key(Role.ADMIN)
    assert await status(house, good, "203.0.113.9") == 200
    clock.advance(CACHED_FOR)  # it has to be looked up again
    told = [await status(house, f"guess-{n}", "203.0.113.9") for n in range(40)]
    assert told[:20] == [401] * 20
    assert set(told[20:]) == {429}
    assert await status(house, "one-guess", "203.0.113.10") == 401
    assert await status(house, good, "203.0.113.9") == 200
    assert await status(house, other, "203.0.113.9") == 200  # never seen before


async def test_a_client_with_one_wrong_key_is_answered_401_however_often_it_asks() -> None:  # E66
    house, _ = timed_house()
    await house.key(Role.ADMIN)
    assert {await status(house, "mistyped", "203.0.113.9") for _ in range(40)} == {401}


async def test_a_flood_of_guesses_keeps_few_look_ups_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E66
    house, _ = timed_house()
    good = await house.key(Role.ADMIN)
    under_way, most, kept = 0, 0, access_keys.find

    async def counted(store: Transacts, digest: bytes) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await kept(store, digest)

    monkeypatch.setattr(access_keys, "find", counted)
    flood = [status(house, f"guess-{n}", "203.0.113.9") for n in range(300)]
    *_, answered = await asyncio.gather(*flood, status(house, good, "203.0.113.9"))
    assert answered == 200
    assert most <= LOOK_UPS


async def test_a_key_that_was_good_does_not_wait_behind_guesses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E66
    house, clock = timed_house()
    good = await house.key(Role.ADMIN)
    assert await status(house, good) == 200
    clock.advance(CACHED_FOR)
    kept, go_on, digest = access_keys.find, asyncio.Event(), digest_of(good)

    async def slow(store: Transacts, asked: bytes) -> object:
        if asked != digest:
            await go_on.wait()
        return await kept(store, asked)

    monkeypatch.setattr(access_keys, "find", slow)
    flood = [asyncio.ensure_future(status(house, f"guess-{n}")) for n in range(50)]
    async with asyncio.timeout(30):
        assert await status(house, good) == 200
    assert not any(one.done() for one in flood)
    go_on.set()
    assert set(await asyncio.gather(*flood)) <= {401, 429}


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "bearer\t", "Token x", "Bearer a b", "Bearer " + "x" * 201, "Bearer \xff\xfe"],
)
async def test_odd_headers_are_no_keys(header: str) -> None:  # E66
    house, _ = timed_house()
    await house.key(Role.ADMIN)
    async with house.client() as client:
        answer = await client.get(f"{API}/workers", headers=[(b"authorization", header.encode("latin-1"))])
        assert answer.status_code == 401
        answer = await client.get(f"{API}/workers", headers=[("authorization", "Bearer a")] * 2)
        assert answer.status_code == 401


async def test_without_a_key_this_machine_alone_is_let_in_and_only_where_that_was_said() -> None:  # E66
    closed, until_first, loopback = (
        new_house(without_key=mode) for mode in ("never", "until_first", "loopback")
    )
    for host in ("127.0.0.1", "::1", "127.8.9.1"):
        assert await status(closed, None, host) == 401
        assert await status(until_first, None, host) == 200
        assert await status(loopback, None, host) == 200
    for host in ("192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "", "localhost.example"):
        for house in (closed, until_first, loopback):
            assert await status(house, None, host) == 401


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Forwarded-For", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
        ("X-Real-IP", "127.0.0.1"),
        ("Via", "1.1 proxy"),
        ("Host", "evil.example"),
        ("Host", "127.0.0.1.evil.example"),
        ("Host", "["),
        ("Origin", "http://["),
        ("Sec-Fetch-Site", "cross-site"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
    ],
)
async def test_who_comes_through_a_proxy_or_a_web_page_is_not_this_machine(
    name: str, value: str
) -> None:  # E66
    house = new_house(without_key="loopback")
    async with house.client() as client:
        assert (await client.get(f"{API}/workers", headers={name: value})).status_code == 401
        made_here = {"Origin": "http://localhost:5173", "Host": "[::1]:8000"}
        assert (await client.get(f"{API}/workers", headers=made_here)).status_code == 200


async def test_what_a_proxy_says_does_not_make_a_stranger_of_this_machine() -> None:  # E66
    house = new_house(without_key="loopback")
    headers = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "Host": "127.0.0.1"}
    async with house.client("192.0.2.1", headers=headers) as client:
        assert (await client.get(f"{API}/workers")).status_code == 401


async def test_the_first_key_closes_the_door() -> None:  # E66
    house, clock = timed_house(without_key="until_first")
    assert await status(house, None, "127.0.0.1") == 200
    secret = await house.key(Role.VIEWER)
    clock.advance(CACHED_FOR)
    assert await status(house, None, "127.0.0.1") == 401
    assert await status(house, secret, "127.0.0.1") == 200


def test_an_unknown_mode_is_an_error_of_the_program() -> None:
    with pytest.raises(UsageError, match="one of never, until_first, loopback"):
        api(new_app(), without_key="always")


async def test_what_there_is_and_what_not_is_for_those_with_a_key() -> None:  # E66
    house, _ = timed_house()
    secret = await house.key(Role.VIEWER)
    for headers, nothing, wrong_method in (({}, 401, 401), ({"Authorization": f"Bearer {secret}"}, 404, 405)):
        async with house.client(headers=headers) as client:
            assert (await client.get(f"{API}/nothing")).status_code == nothing
            assert (await client.delete(f"{API}/jobs")).status_code == wrong_method
            assert (await client.get("/")).status_code == nothing

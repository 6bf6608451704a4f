"""How often one owner may call: together over all servers, told in headers, and none of another's business."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from holdfast.engine.access import Role
from holdfast.engine.requests import Requests
from holdfast.resilience.limits import Rate
from holdfast.server import api, rate_limit
from holdfast.server.problems import Problem
from holdfast.server.rate_limits import RateLimits
from holdfast.testing import ManualClock
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio


def limited(rate: str) -> tuple[House, ManualClock]:
    clock = ManualClock()
    return new_house(new_app(clock=clock), clock=clock, rate=rate), clock


async def test_one_too_many_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:  # E66
    house, clock = limited("20/min")
    async with house.client(headers=await house.as_(Role.OWNER, "ann")) as client:
        told = [await client.get(f"{API}/jobs") for _ in range(25)]
        assert [answer.status_code for answer in told] == [200] * 20 + [429] * 5
        assert told[0].headers["ratelimit-policy"] == '"owner";q=20;w=60'
        assert told[0].headers["ratelimit"].startswith('"owner";r=')
        refused = told[-1]
        assert refused.json()["code"] == "RATE_LIMITED"
        assert refused.json()["type"].endswith("#quota-exceeded")
        wait = int(refused.headers["retry-after"])
        assert wait == refused.json()["retry_after"] == 3
        clock.advance(wait)
        assert (await client.get(f"{API}/jobs")).status_code == 200


async def test_a_flood_of_one_leaves_the_others_alone_whatever_it_says_of_itself() -> None:  # E66
    house, _ = limited("10/min")
    flood = await house.as_(Role.OWNER, "flood")
    async with house.client(headers=flood) as client:
        codes = [
            (await client.get(f"{API}/jobs", headers={"X-Forwarded-For": f"192.0.2.{n}"})).status_code
            for n in range(20)
        ]
        assert codes.count(200) == 10
    another_key = {"Authorization": f"Bearer {await house.key(Role.OWNER, 'flood')}"}
    async with house.client(headers=another_key) as client:  # the owner is counted, not the key
        assert (await client.get(f"{API}/jobs")).status_code == 429
    async with house.client(headers=await house.as_(Role.OWNER, "calm")) as client:
        assert (await client.get(f"{API}/jobs")).status_code == 200


async def test_servers_count_together_and_ask_the_store_once_a_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E66
    house, clock = limited("200/min")
    second = House(house.app, api(house.app, rate="200/min", clock=clock), house.secrets)
    headers = await house.as_(Role.OWNER, "ann")
    store, charges = (await house.app.runtime.engine()).store, 0
    charge = store.lanes.charge

    async def counted(groups: object) -> object:
        nonlocal charges
        charges += 1
        await asyncio.sleep(0)  # others come meanwhile
        return await charge(groups)  # type: ignore[arg-type]

    monkeypatch.setattr(store.lanes, "charge", counted)
    async with house.client(headers=headers) as one, second.client(headers=headers) as two:
        answers = await asyncio.gather(
            *(client.get(f"{API}/jobs") for _ in range(150) for client in (one, two))
        )
    codes = [answer.status_code for answer in answers]
    assert codes.count(200) == 200
    assert codes.count(429) == 100
    assert charges <= 24  # 20 blocks of 10, and a refusal or two on each side


class SleepsAtOnce(ManualClock):
    """Notes how long somebody was made to wait, and moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def test_who_does_not_heed_refusals_is_told_later_and_let_in_evenly() -> None:  # E66
    clock = SleepsAtOnce()
    rates = RateLimits(Requests(new_app(clock=clock).runtime), clock, Rate.read("6000/min"))

    async def allowed(times: int) -> int:
        done = 0
        for _ in range(times):
            with suppress(Problem):
                await rates.take("flood")
                done += 1
        return done

    assert await allowed(6000) == 6000
    assert await allowed(51) == 0  # the first closes the door, fifty find it closed
    assert clock.waits == []  # somebody who tries a few times more has done nothing wrong
    assert await allowed(20) == 0
    assert len(set(clock.waits)) == 20
    assert all(0.05 <= wait < 0.1 for wait in clock.waits)
    clock.advance(3.1)  # the wait for a block of 300, which it was told first
    assert await allowed(1000) == 306
    clock.advance(0.07)
    assert await allowed(50) == 6  # a thousandth, as soon as that is free
    clock.advance(121)
    assert await allowed(301) == 301  # it has kept to its rate for long enough: in blocks again
    clock.advance(0.07)
    assert (await rates.take("flood"))[1][1].startswith(b'"owner";r=298;')


async def test_a_route_of_ones_own_is_counted_apart() -> None:  # E66
    app = new_app()
    async with app:
        uploads, downloads = (rate_limit(app, name, "3/h") for name in ("upload", "download"))
        waits = [await uploads("ann") for _ in range(5)]
        assert waits[:3] == [None] * 3
        assert all(wait is not None and 0 < wait <= 3600 for wait in waits[3:])
        assert await uploads("bob") is None
        assert await downloads("ann") is None
        again = rate_limit(app, "upload", "3/h")  # another server on the same store
        assert await again("ann") is not None

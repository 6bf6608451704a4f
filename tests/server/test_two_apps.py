"""Two apps in one process, each behind an API of its own: they share the routes, and nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.engine.access import Role
from holdfast.server import api
from holdfast.server.assembly import table
from holdfast.server.body_limits import ENVELOPE
from holdfast.server.routes import ROUTES
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from tests.server.world import API, House, new_house

pytestmark = pytest.mark.anyio

NAMES = ("left", "right")


def house_of(name: str, **options: Any) -> House:
    """An app with one task, which has the app's name."""
    clock = ManualClock()
    app = Holdfast("memory://", store=MemoryStore(clock), clock=clock, payload_limit=len(name) * 1000)

    @app.task(name=name, queue=name)
    async def work(text: str) -> str:
        return text

    return new_house(app, clock=clock, **options)


@pytest.fixture
def houses() -> dict[str, House]:
    return {name: house_of(name) for name in NAMES}


async def enqueued(client: httpx2.AsyncClient, task: str, **headers: str) -> httpx2.Response:
    body = {"task": task, "args": {"text": "hello"}}
    return await client.post(f"{API}/jobs", json=body, headers=headers)


def test_a_second_api_makes_no_route_anew() -> None:
    assert [id(route) for route in table(new_house().site)] == [id(route) for route in ROUTES]


def test_what_is_added_to_one_site_is_not_in_another() -> None:
    one, other = new_house().site, new_house().site
    one.get("/more")(lambda: None)
    assert len(one.router.routes) == len(ROUTES) + 1
    assert tuple(other.router.routes) == ROUTES


async def test_calls_of_two_apps_at_once_find_each_its_own(houses: dict[str, House]) -> None:
    async def use(name: str, other: str) -> set[str]:
        house, mine = houses[name], set()
        async with house.client(headers=await house.as_(Role.ADMIN)) as client:
            for number in range(20):
                made = await enqueued(client, name, **{"Idempotency-Key": f"same-{number}"})
                assert made.status_code == 201, made.text
                mine.add(made.json()["id"])
                assert (await enqueued(client, other)).json()["code"] == "UNKNOWN_TASK"
                assert (await client.get(made.headers["location"])).json()["task"] == name
            listed = (await client.get(f"{API}/jobs", params={"limit": 100})).json()["jobs"]
            assert {job["id"] for job in listed} == mine
            assert [one["name"] for one in (await client.get(f"{API}/queues")).json()["queues"]] == [name]
            assert f'queue="{name}"' in (told := (await client.get("/metrics")).text)
            assert f'queue="{other}"' not in told
        return mine

    left, right = await asyncio.gather(use(*NAMES), use(*reversed(NAMES)))
    assert len(left) == len(right) == 20
    assert not left & right


async def test_a_key_of_one_app_opens_no_other(houses: dict[str, House]) -> None:
    left, right = houses.values()
    async with left.client() as client, right.client() as elsewhere:
        key, other = await left.as_(Role.ADMIN), await right.as_(Role.ADMIN)
        for _ in range(2):  # what is remembered of keys is each door's own
            assert (await client.get(f"{API}/jobs", headers=key)).status_code == 200
            assert (await elsewhere.get(f"{API}/jobs", headers=key)).status_code == 401
            assert (await elsewhere.get(f"{API}/nothing", headers=key)).status_code == 401
            assert (await elsewhere.get(f"{API}/jobs", headers=other)).status_code == 200


async def test_each_has_the_settings_it_was_made_with() -> None:
    left, right = house_of("left", rate="3/min"), house_of("right", without_key="loopback")
    async with left.client(headers=await left.as_(Role.ADMIN)) as client, right.client() as elsewhere:
        came = []
        for _ in range(5):
            came.append((await client.get(f"{API}/jobs")).status_code)
            assert (await elsewhere.get(f"{API}/jobs")).status_code == 200
        assert came == [200, 200, 200, 429, 429]


async def test_what_is_too_large_for_one_is_not_for_another(houses: dict[str, House]) -> None:
    assert [house.app.runtime.payload_limit for house in houses.values()] == [4000, 5000]
    for text, padding, refused in ((4500, 0, 422), (1, ENVELOPE + 4500, 413)):  # the arguments, the body
        came = []
        for name, house in houses.items():
            async with house.client(headers=await house.as_(Role.ADMIN)) as client:
                body = json.dumps({"task": name, "args": {"text": "x" * text}}) + " " * padding
                headers = {"Content-Type": "application/json"}
                came.append((await client.post(f"{API}/jobs", content=body, headers=headers)).status_code)
        assert came == [refused, 201]


async def test_the_streams_of_one_end_without_those_of_another(houses: dict[str, House]) -> None:
    left, right = (house.site.state.context for house in houses.values())
    left.close()
    assert left.event_reader.is_closed
    assert not right.event_reader.is_closed


async def test_both_are_mounted_in_one_site(houses: dict[str, House]) -> None:
    site = FastAPI()
    for name, house in houses.items():
        site.mount(f"/{name}", house.site)
    async with House(houses["left"].app, site).client() as client:
        for name, house in houses.items():
            client.headers.update(await house.as_(Role.ADMIN))
            body = {"task": name, "args": {"text": "hello"}}
            made = await client.post(f"/{name}{API}/jobs", json=body)
            assert made.headers["location"] == f"/{name}{API}/jobs/{made.json()['id']}"
            told = (await client.get(f"/{name}{API}/openapi.json")).json()
            assert told["servers"] == [{"url": f"/{name}"}]
            [elsewhere] = set(NAMES) - {name}
            assert (await client.get(f"/{elsewhere}{API}/jobs")).status_code == 401


async def test_one_app_may_have_two_apis_with_doors_of_their_own() -> None:
    house = new_house()
    open_to_all = House(house.app, api(house.app, without_key="loopback"), house.secrets)
    async with house.client() as client, open_to_all.client() as inside:
        assert (await client.get(f"{API}/jobs")).status_code == 401
        assert (await inside.get(f"{API}/jobs")).status_code == 200
        assert (await client.get(f"{API}/jobs")).status_code == 401

"""Some routes are answered past the framework's layers. Nobody but the clock can tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.domain.access import Role
from holdfast.server import assembly
from holdfast.server.body_limits import Direct
from holdfast.server.routes import DIRECT, ROUTES
from holdfast.server.routing import ApiRoute
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

GOOD: dict[str, Any] = {"task": "note", "args": {"text": "hello"}}
#: Headers beside the key, and the body.
CALLS: list[tuple[dict[str, str], bytes]] = [
    ({}, json.dumps(GOOD).encode()),
    ({"Idempotency-Key": "one"}, json.dumps(GOOD).encode()),
    ({"Idempotency-Key": '"half'}, json.dumps(GOOD).encode()),
    ({}, b""),
    ({}, b"{"),
    ({}, b'{"task": "note", "task": "note"}'),
    ({}, json.dumps({**GOOD, "state": "complete"}).encode()),
    ({}, json.dumps({**GOOD, "args": {"text": 5}}).encode()),
    ({}, json.dumps({**GOOD, "task": "nothing"}).encode()),
    ({}, b'"' + b"x" * 2_000_000 + b'"'),
    ({"Content-Type": "text/plain"}, b"{}"),
    ({"Content-Encoding": "gzip"}, b"{}"),
    ({"Authorization": "Bearer unknown"}, b"{}"),
    ({"Authorization": ""}, b"{}"),
]


def house_with(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(assembly, "DIRECT", direct)
    return new_house(new_app(), rate="1000/h")


async def answers(house: House, path: str) -> list[tuple[int, dict[str, str], set[str], str]]:
    """Of each call what does not differ from one to the next."""
    found = []
    async with house.client() as client:
        for headers, body in CALLS:
            said = await house.as_(Role.ADMIN) | {"Content-Type": "application/json"} | headers
            told = await client.post(path, content=body, headers=said)
            content = told.json()
            kept = {
                name: value
                for name, value in told.headers.items()
                if name not in ("content-length", "location")
            }
            found.append((told.status_code, kept, set(content), str(content.get("detail"))))
    return found


@pytest.mark.parametrize("path", [path for _, path in DIRECT if not path.endswith("inbound")])
async def test_the_answers_are_those_of_the_framework(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    direct = await answers(house_with(DIRECT, monkeypatch), path)
    assert direct == await answers(house_with({}, monkeypatch), path)
    assert {status for status, *_ in direct} >= {400, 401, 413, 415, 422}


async def test_it_is_found_under_the_path_where_the_api_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    house = house_with(DIRECT, monkeypatch)
    house.site.router.routes.clear()  # so that only the direct way is left
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        assert (await client.post(f"{API}/jobs", json=GOOD)).status_code == 201
        house.site.root_path = "/below"
        made = await client.post(f"/below{API}/jobs", json=GOOD)
        assert made.status_code == 201
        assert made.headers["location"].startswith(f"/below{API}/jobs/")
        assert (await client.get(f"/below{API}/jobs")).status_code == 404


def test_what_has_a_name_in_its_path_goes_the_long_way() -> None:
    assert ("POST", f"{API}/jobs") in DIRECT
    assert not [path for _, path in DIRECT if "{" in path]
    known = {
        (method, route.path)
        for route in ROUTES
        if isinstance(route, ApiRoute)
        for method in route.methods or ()
    }
    assert set(DIRECT) <= known

"""Policies over HTTP: what is in force, and overriding it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from holdfast.engine.access import Role
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

KEY = "tasks.convert.max_attempts"


@pytest.fixture
async def house(store_url: str) -> AsyncIterator[House]:
    app = new_app(store_url)
    async with app:
        yield new_house(app)


async def get(house: House, path: str, role: Role = Role.VIEWER, **query: Any) -> Any:
    async with house.client(headers=await house.as_(role)) as client:
        answer = await client.get(f"{API}/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def post(house: House, verb: str, role: Role = Role.OPERATOR, **body: Any) -> httpx2.Response:
    headers = await house.as_(role, "alice" if role is Role.OWNER else None)
    async with house.client(headers=headers) as client:
        return await client.post(f"{API}/policies/{verb}", json=body)


async def test_an_operator_overrides_a_policy_and_a_viewer_sees_who_did(house: House) -> None:  # E10 E66
    made = await post(house, "set", key=KEY, value=7, reason="bank is slow", lasts="1h")
    assert made.status_code == 200, made.text
    assert made.json()["by"].startswith("key:operator-")
    assert house.app.tasks["convert"].policy.retry.max_attempts == 7
    [shown] = (await get(house, "policies", under=KEY))["policies"]
    assert (shown["value"], shown["source"], shown["without"]) == (7, "override", 3)
    assert shown["override"] == made.json()
    assert (await get(house, "policies/overrides"))["overrides"] == [made.json()]
    assert "max_attempts = 7" in (await get(house, "policies/export"))["toml"]
    assert (await post(house, "unset", key=KEY, reason="over")).json() == {"key": KEY, "unset": True}
    assert (await post(house, "unset", key=KEY)).json() == {"key": KEY, "unset": False}
    [ended] = (await get(house, "policies/history", key=KEY))["overrides"]
    assert (ended["version"], ended["ended_reason"]) == (made.json()["version"], "over")


@pytest.mark.parametrize("role", [Role.OWNER, Role.VIEWER])
async def test_owners_and_viewers_may_override_nothing(house: House, role: Role) -> None:  # E66
    for verb, body in (("set", {"key": KEY, "value": 7}), ("unset", {"key": KEY})):
        assert (await post(house, verb, role, **body)).status_code == 403
    assert (await get(house, "policies/overrides"))["overrides"] == []


async def test_owners_do_not_see_policies(house: House) -> None:  # E66
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        for path in ("policies", "policies/overrides", "policies/history", "policies/export"):
            assert (await client.get(f"{API}/{path}")).status_code == 403


async def test_of_two_operators_one_is_told_who_came_first(house: House) -> None:  # E10 E66
    version = (await post(house, "set", key=KEY, value=7)).json()["version"]
    answers = await asyncio.gather(
        post(house, "set", key=KEY, value=8, version=version),
        post(house, "set", Role.ADMIN, key=KEY, value=9, version=version),
    )
    won, lost = sorted(answers, key=lambda one: one.status_code)
    assert (won.status_code, lost.status_code) == (200, 409)
    assert f"{won.json()['by']} set it to {won.json()['value']} at " in lost.json()["detail"]


async def test_a_request_that_is_repeated_sets_one_override(house: House) -> None:  # E37
    headers = await house.as_(Role.OPERATOR) | {"Idempotency-Key": "set-once"}
    async with house.client(headers=headers) as client:
        answers = [
            (await client.post(f"{API}/policies/set", json={"key": KEY, "value": 7, "version": 0})).json()
            for _ in range(2)
        ]
    assert answers[0] == answers[1]
    assert len((await get(house, "policies/history"))["overrides"]) == 1


async def test_history_comes_in_pages(house: House) -> None:  # E66
    for value in (4, 5, 6):
        await post(house, "set", key=KEY, value=value)
    first = await get(house, "policies/history", limit=2)
    rest = await get(house, "policies/history", limit=2, before=first["next"])
    assert [one["value"] for one in first["overrides"] + rest["overrides"]] == [6, 5, 4]
    assert rest["next"] is None


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"value": 0}, "tasks.convert.max_attempts: max_attempts is 0; it is a whole number, 1 to 1000"),
    ({"value": None}, "None cannot be written in a policy file"),
    ({"value": "x" * 5000}, "the value has 5,002 characters"),
    ({"value": [[[[1]]]]}, "max_attempts is [[[[1]]]]"),
    ({"value": 2**70}, "cannot be written in a policy file"),
    ({"key": "tasks.convert.max_attemps"}, "did you mean max_attempts?"),
    ({"key": "plugins.gates"}, "this section cannot be overridden"),
    ({"key": "tasks.convert"}, "this is a whole section"),
    ({"key": "x" * 600}, ""),
    ({"key": "tasks.\u202e.cost"}, ""),
    ({"reason": "x" * 501}, ""),
    ({"lasts": "0s"}, "an override that lasts no time is of no use"),
    ({"version": -1}, ""),
    ({"unknown": 1}, ""),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
async def test_a_wrong_override_is_refused_in_one_line(given: dict[str, Any], said: str) -> None:  # E66
    house = new_house()
    body: dict[str, Any] = {"key": KEY, "value": 7} | given
    answer = await post(house, "set", **body)
    assert answer.status_code == 422, answer.text
    assert said in answer.json()["detail"]
    assert (await get(house, "policies/overrides"))["overrides"] == []

"""Secrets in payloads, headers, database addresses and exceptions appear in no answer, event or log."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from holdfast import Fatal, Holdfast
from holdfast.engine.access import Role
from holdfast.server.assembly import table
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

CANARY = "CANARY-7f3a"


async def everything_readable(house: House, job_id: str, role: Role, owner: str | None) -> str:
    """What all routes that only look tell this caller, together."""
    told = []
    async with house.client(headers=await house.as_(role, owner)) as client:
        for route in table(house.site):
            if route.methods == {"GET"} and "stream" not in route.path:
                path = route.path.replace("{job_id}", job_id).replace("{owner:path}", "alice")
                options = ("", "?include=args") if "include" in str(route.dependant.query_params) else ("",)
                for query in options:
                    answer = await client.get(path.replace("{name}", "gateway") + query)
                    assert answer.status_code != 500, answer.text
                    told.append(answer.text)
    return "\n".join(told)


async def test_secrets_of_payloads_and_exceptions_are_told_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    app = new_app(lease=timedelta(seconds=30))

    @app.task
    async def leak(password: str, login: dict[str, str]) -> None:
        try:
            raise OSError(f"cannot connect to postgresql://app:{password}@db/x")
        except OSError as error:
            raise Fatal(f"refused: token={login['token']}") from error

    house = new_house(app)
    body = {
        "task": "leak",
        "owner": "alice",
        "args": {"password": f"{CANARY}-1", "login": {"token": f"{CANARY}-2", "api_key": f"{CANARY}-3"}},
    }
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        made = await client.post(f"{API}/jobs", json=body)
        assert made.status_code == 201
        for bad in (
            body | {"args": {"password": 5, "login": f"{CANARY}-4"}},
            body | {"secret": f"{CANARY}-5"},
        ):
            refused = await client.post(f"{API}/jobs", json=bad)
            assert refused.status_code == 422
            assert CANARY not in refused.text
    await app.run_worker(until_idle=True, queues=["default"])
    row = await app.jobs.get(made.json()["id"])
    assert row.state == "failed"
    for role, owner in ((Role.ADMIN, None), (Role.VIEWER, None), (Role.OWNER, "alice")):
        told = await everything_readable(house, row.id, role, owner)
        assert row.id in told
        assert CANARY not in told
        assert ("in test_secrets_of" in told) is (role is not Role.OWNER)  # the traceback
        assert ("OSError" in told) is (role is not Role.OWNER)
    assert CANARY not in caplog.text
    assert "in test_secrets_of" in caplog.text
    assert CANARY not in str([event.meta for event in await app.events.list()])


async def test_secrets_of_headers_and_addresses_are_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, logger="httpx2")  # the client's own lines
    house = new_house()
    async with house.client(
        headers={"Authorization": f"Bearer {CANARY}", "Cookie": f"session={CANARY}"}
    ) as client:
        for path in (f"{API}/jobs", f"{API}/nothing", f"{API}/jobs?api_key={CANARY}", f"{API}/{CANARY}"):
            answer = await client.get(path)
            assert answer.status_code in (400, 401)
            assert CANARY not in answer.text + str(answer.headers)
    unreachable = House(app := Holdfast(f"postgresql://app:{CANARY}@127.0.0.1:1/x"), new_house(app).site)
    async with unreachable.client(headers={"Authorization": "Bearer some"}) as client:
        answer = await client.get(f"{API}/jobs")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
    assert CANARY not in answer.text
    assert CANARY not in caplog.text

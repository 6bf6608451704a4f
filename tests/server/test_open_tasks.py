"""Which tasks may be called from outside: roles × roads × kinds of tasks. A route that could call one is tested by being there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast, Limits
from holdfast.engine.access import Action, Role
from holdfast.server.assembly import table
from holdfast.webhooks.delivery import install
from holdfast.webhooks.selection import INBOUND_TASK, TASK
from tests.server.roads import (
    ALL,
    ENDING,
    ROADS,
    Road,
    World,
    enqueue,
    redrive,
    redrive_all,
    retry,
    retry_all,
)
from tests.server.world import API, new_app, new_house

pytestmark = pytest.mark.anyio

#: Kinds of tasks, by one of each.
OPEN, CLOSED, PLUGGED, INTERNAL = "convert", "sweep", "plugged", TASK
KINDS = (OPEN, CLOSED, PLUGGED, INTERNAL, INBOUND_TASK)
ARGS: dict[str, dict[str, Any]] = {
    OPEN: {"pdf": "a.pdf"},
    CLOSED: {},
    PLUGGED: {},
    TASK: {"webhook": "wh_x", "message": "m", "body": "{}"},
    INBOUND_TASK: {"webhook": "wh_x", "job_id": "x", "owner": None},
}
OWNER, STAFF = "owner", ("operator", "admin", "loopback")


def make_app(url: str) -> Holdfast:
    app = new_app(url)

    @app.task(queue="house")
    async def sweep() -> None: ...

    runtime = app.runtime
    install(
        runtime.tasks, runtime.admission, runtime.engine, runtime
    )  # as the worker of `holdfast up --port` does
    return app


@pytest.fixture
async def make_world(store_url: str) -> AsyncIterator[Callable[[str], Awaitable[World]]]:
    app = make_app(store_url)
    house = new_house(app, without_key="loopback")

    @app.task(name=PLUGGED)  # later than the API: as a plug-in would add it
    async def plugged() -> None: ...

    opened: list[httpx2.AsyncClient] = []

    async def make(role: str) -> World:
        known = {} if role == "loopback" else await house.as_(Role(role), "alice" if role == OWNER else None)
        transport = httpx2.ASGITransport(app=house.site, client=("127.0.0.1", 4711))
        opened.append(httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=known))
        return World(
            app=app,
            client=opened[-1],
            args=ARGS,
            queue="press",
            owner="alice" if role == OWNER else None,
            also=(OPEN,),
        )

    async with app:
        yield make
        for client in opened:
            await client.aclose()


def is_allowed(role: str, road: Road, task: str) -> bool:
    if role == OWNER:
        return task == OPEN
    if task in (TASK, INBOUND_TASK):  # staff runs them again as they are, and calls none
        return road in (retry, redrive, retry_all, redrive_all)
    return True


def test_every_route_that_can_make_a_task_run_is_tried() -> None:
    there = {
        route.name
        for route in table(new_house().site)
        if "POST" in (route.methods or ()) and route.action in (Action.ENQUEUE, Action.STEER, None)
    }
    assert there == ROADS.keys() | ENDING


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("role", [OWNER, *STAFF])
async def test_a_task_is_called_by_those_it_is_open_to_alone(
    make_world: Callable[[str], Awaitable[World]], role: str, task: str
) -> None:  # E66
    world = await make_world(role)
    for road in ALL:
        answer, before, after = await world.observed(road, task)
        name = f"{road.__name__} by {role}: {answer.text}"
        if is_allowed(role, road, task):
            assert answer.is_success, name
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), name
            assert after == before, f"{name} left something behind"


async def test_the_refusal_says_what_to_do_and_is_on_record(
    make_world: Callable[[str], Awaitable[World]], caplog: pytest.LogCaptureFixture
) -> None:
    world = await make_world(OWNER)
    for road in (enqueue, retry):
        caplog.clear()
        await road(world, CLOSED)
        assert "request.forbidden" in caplog.text, road
    told = (await enqueue(world, CLOSED)).json()["detail"]
    assert told == "task sweep is not open to owners' keys; declare it with http=True"
    assert "engine's own" in (await enqueue(world, TASK)).json()["detail"]
    unknown = await world.post("jobs", {"task": "sweeq"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "UNKNOWN_TASK")
    assert "sweep" not in unknown.text, "what is closed to it is not proposed"


async def test_an_operation_of_an_owner_reaches_what_is_open_alone(
    make_world: Callable[[str], Awaitable[World]],
) -> None:  # E66
    world = await make_world(OWNER)
    closed, opened = await world.job(CLOSED), await world.job(OPEN)
    for where in ({}, {"ids": [closed, opened]}):
        for action in ("retry", "redrive"):
            begun = await world.post("operations", {"action": action, "filter": where, "dry_run": True})
            assert begun.json()["matched"] == 1, begun.text
        ended = await world.post(
            "operations", {"action": "discard", "filter": where, "dry_run": True, "reason": "x"}
        )
        assert ended.json()["matched"] == 2, "what runs nothing is not bound"


async def test_an_owner_sees_and_cancels_its_jobs_of_a_closed_task(
    make_world: Callable[[str], Awaitable[World]],
) -> None:
    world = await make_world(OWNER)
    job_id = (await world.app.tasks[CLOSED].options(owner="alice").enqueue()).id
    assert (await world.client.get(f"{API}/jobs/{job_id}")).status_code == 200
    assert (await world.post(f"jobs/{job_id}/cancel")).status_code == 200


# -- queues ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", [OWNER, "operator"])
async def test_an_owner_names_only_queues_that_are_declared(
    make_world: Callable[[str], Awaitable[World]], role: str
) -> None:  # E66
    world = await make_world(role)
    for queue in ("mine", "holdfast.webhooks", "house", "default"):
        roads = {
            "jobs": {"task": OPEN, "args": ARGS[OPEN], "queue": queue},
            "jobs/batch": {"jobs": [{"task": OPEN, "args": ARGS[OPEN], "queue": queue}]},
            f"dead-letters/{await world.job(OPEN)}/redrive": {"to_queue": queue},
            "operations": {"action": "redrive", "filter": {}, "to_queue": queue},
        }
        for path, body in roads.items():
            before, lanes = await world.state(), await world.app.queues.lanes()
            answer = await world.post(path, body)
            if role == OWNER and queue in ("mine", "holdfast.webhooks"):
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), path
                assert queue in answer.json()["detail"]
                assert await world.state() == before
                assert len(await world.app.queues.lanes()) == len(lanes)
            else:
                assert answer.is_success, answer.text


async def test_an_owner_names_no_shards(make_world: Callable[[str], Awaitable[World]]) -> None:
    body = {"task": OPEN, "args": ARGS[OPEN], "shard": "one"}
    assert (await (await make_world(OWNER)).post("jobs", body)).status_code == 403
    assert (await (await make_world("operator")).post("jobs", body)).status_code == 201


async def test_the_file_and_the_app_declare_queues_too(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[queues.filed]\ntimeout = "1m"\n')
    app = new_app(policies=tmp_path / "holdfast.toml")
    app.queue("limited", Limits(concurrency=1))
    house = new_house(app)
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        for queue, status in (("filed", 201), ("limited", 201), ("neither", 403)):
            body = {"task": OPEN, "args": ARGS[OPEN], "queue": queue}
            assert (await client.post(f"{API}/jobs", json=body)).status_code == status, queue


async def test_any_queue_may_be_named_where_the_app_allows_it() -> None:
    house = new_house(new_app(owner_queues="any"))
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        body = {"task": OPEN, "args": ARGS[OPEN], "queue": "mine", "shard": "one"}
        assert (await client.post(f"{API}/jobs", json=body)).status_code == 201

"""Which tasks may be called from outside: roles × roads × kinds of tasks. A route that could call one is tested by being there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.domain.access import Action, Role
from holdfast.domain.job import JobId, Settlement
from holdfast.domain.verdict import Bury, Failure
from holdfast.http.building import table
from holdfast.webhooks.choosing import INBOUND_TASK, TASK
from holdfast.webhooks.delivering import delivery, install
from holdfast.webhooks.signature import sign
from tests.http.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio
_names = count(1)

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

    install(app)  # as the worker of `holdfast up --port` does
    return app


@dataclass
class World:
    house: House
    client: httpx2.AsyncClient
    role: str

    @property
    def owner(self) -> str | None:
        return "alice" if self.role == OWNER else None

    async def job(self, task: str) -> JobId:
        """A dead letter of *task*, of the caller where it is an owner; the engine's own are nobody's."""
        engine = await self.house.app.engine()
        if task in (TASK, INBOUND_TASK):
            made = engine.ids.job_id()
            row = delivery("wh_x", "m", "{}", made)
            if task == INBOUND_TASK:
                spec = self.house.app.tasks[task].plain_spec
                row = row._replace(spec=spec, payload='{"webhook":"wh_x","job_id":"x","owner":null}')
            await engine.enqueue([row])
        else:
            task_ = self.house.app.tasks[task].options(owner=self.owner)
            made = (await task_.enqueue(**ARGS[task])).id
        store = engine.store
        session = await store.open_session(f"worker-{next(_names)}", timedelta(minutes=1))
        for one in await store.claim(session, sorted(await store.lanes()), 1000):
            await store.settle([Settlement(one.lease, Bury(Failure("BOOM", "It went wrong.")), one.attempt)])
        await store.close_session(session)
        assert (await self.house.app.job(made)).state == "failed"
        return made

    async def state(self) -> tuple[Any, ...]:
        """All that a request could have changed."""
        engine = await self.house.app.engine()
        operations = [one.id for one in await engine.store.operations(100)]
        return await engine.counts(), await engine.store.newest_event(), operations

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return await self.client.post(f"{API}/{path}", json=body, headers=headers)


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
        return World(house, opened[-1], role)

    async with app:
        yield make
        for client in opened:
            await client.aclose()


# -- the roads ---------------------------------------------------------------------------------------------------------
async def enqueue(world: World, task: str) -> httpx2.Response:
    return await world.post("jobs", {"task": task, "args": ARGS[task]})


async def enqueue_named(world: World, task: str) -> httpx2.Response:
    headers = {"Idempotency-Key": f'"name-{next(_names)}"'}
    return await world.post("jobs", {"task": task, "args": ARGS[task]}, **headers)


async def enqueue_deduped(world: World, task: str) -> httpx2.Response:
    return await world.post("jobs", {"task": task, "args": ARGS[task], "dedupe_key": "one"})


async def enqueue_batch(world: World, task: str) -> httpx2.Response:
    """One that may go, and then the one in question: all or none."""
    first = {"task": OPEN, "args": ARGS[OPEN]}
    return await world.post("jobs/batch", {"jobs": [first, {"task": task, "args": ARGS[task]}]})


async def retry(world: World, task: str) -> httpx2.Response:
    return await world.post(f"jobs/{await world.job(task)}/retry")


async def retry_edited(world: World, task: str) -> httpx2.Response:
    return await world.post(f"jobs/{await world.job(task)}/retry", {"args": ARGS[task]})


async def redrive(world: World, task: str) -> httpx2.Response:
    return await world.post(f"dead-letters/{await world.job(task)}/redrive")


async def redrive_elsewhere(world: World, task: str) -> httpx2.Response:
    return await world.post(f"dead-letters/{await world.job(task)}/redrive", {"to_queue": "press"})


async def retry_all(world: World, task: str) -> httpx2.Response:
    await world.job(task)
    return await world.post("operations", {"doing": "retry", "where": {"task": [task]}})


async def redrive_all(world: World, task: str) -> httpx2.Response:
    await world.job(task)
    body = {"doing": "redrive", "where": {"task": [task]}, "to_queue": "press"}
    return await world.post("operations", body)


async def ask_by_message(world: World, task: str) -> httpx2.Response:
    made = await world.house.app.create_inbound_webhook(owner=world.owner)
    content = f'{{"action":"retry","job":"{await world.job(task)}"}}'.encode()
    headers = sign(made.secrets, f"msg-{next(_names)}", datetime.now(UTC), content)
    return await world.client.post(f"{API}/inbound/{made.id}", content=content, headers=headers)


Road = Callable[[World, str], Awaitable[httpx2.Response]]
#: By the route that they take. Every route that can make a task run is here.
ROADS: dict[str, tuple[Road, ...]] = {
    "enqueue_job": (enqueue, enqueue_named, enqueue_deduped),
    "enqueue_jobs": (enqueue_batch,),
    "retry_job": (retry, retry_edited),
    "redrive_dead_letter": (redrive, redrive_elsewhere),
    "begin_operation": (retry_all, redrive_all),
    "receive_webhook": (ask_by_message,),
}
#: Routes of the same actions that make nothing run.
ENDING = {"cancel_job", "discard_dead_letter", "cancel_operation"}


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
    for road in [road for roads in ROADS.values() for road in roads]:
        answer, before, after = await _observed(world, road, task)
        name = f"{road.__name__} by {role}: {answer.text}"
        if is_allowed(role, road, task):
            assert answer.is_success, name
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), name
            assert after == before, f"{name} left something behind"


async def _observed(world: World, road: Road, task: str) -> tuple[httpx2.Response, Any, Any]:
    """The answer, and how it was right before and after the request."""
    seen: list[Any] = []

    async def note(request: httpx2.Request) -> None:
        seen.append(await world.state())

    world.client.event_hooks = {"request": [note]}
    answer = await road(world, task)
    return answer, seen[-1], await world.state()


async def test_the_refusal_says_what_to_do(make_world: Callable[[str], Awaitable[World]]) -> None:
    world = await make_world(OWNER)
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
        for doing in ("retry", "redrive"):
            begun = await world.post("operations", {"doing": doing, "where": where, "dry_run": True})
            assert begun.json()["matched"] == 1, begun.text
        ended = await world.post(
            "operations", {"doing": "discard", "where": where, "dry_run": True, "reason": "x"}
        )
        assert ended.json()["matched"] == 2, "what runs nothing is not bound"


async def test_an_owner_sees_and_cancels_its_jobs_of_a_closed_task(
    make_world: Callable[[str], Awaitable[World]],
) -> None:
    world = await make_world(OWNER)
    job_id = (await world.house.app.tasks[CLOSED].options(owner="alice").enqueue()).id
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
            "operations": {"doing": "redrive", "where": {}, "to_queue": queue},
        }
        for path, body in roads.items():
            before, lanes = await world.state(), await (await world.house.app.engine()).lanes()
            answer = await world.post(path, body)
            if role == OWNER and queue in ("mine", "holdfast.webhooks"):
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), path
                assert queue in answer.json()["detail"]
                assert await world.state() == before
                assert len(await (await world.house.app.engine()).lanes()) == len(lanes)
            else:
                assert answer.is_success, answer.text


async def test_an_owner_names_no_shards(make_world: Callable[[str], Awaitable[World]]) -> None:
    body = {"task": OPEN, "args": ARGS[OPEN], "shard": "one"}
    assert (await (await make_world(OWNER)).post("jobs", body)).status_code == 403
    assert (await (await make_world("operator")).post("jobs", body)).status_code == 201


async def test_any_queue_may_be_named_where_the_app_allows_it() -> None:
    house = new_house(new_app(owner_queues="any"))
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        body = {"task": OPEN, "args": ARGS[OPEN], "queue": "mine", "shard": "one"}
        assert (await client.post(f"{API}/jobs", json=body)).status_code == 201

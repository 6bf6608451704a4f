"""Who may do what: every route of the table × every kind of caller. A new route is tested by being there."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from holdfast.engine.access import Action, Role
from holdfast.errors import UsageError
from holdfast.server.assembly import table
from holdfast.server.routing import ApiRoute, allows, router
from tests.server.world import API, House, assert_as_documented, new_house

HOUSE = new_house()
ROUTES = {f"{min(route.methods or ())} {route.path}": route for route in table(HOUSE.site)}
GUARDED = {name: route for name, route in ROUTES.items() if route.action is not None}
#: What is open to everybody, and why: a decision, not an accident.
OPEN = {
    "GET /livez": "whoever starts processes has no key; it tells nothing",
    "GET /readyz": "the same",
    "POST /api/v1/inbound/{webhook_id}": "its messages are signed",
    "POST /api/v1/session": "a key is exchanged here",
}
#: Routes whose answer belongs to one owner, by the parameter that says which.
OWNED = {name: route for name, route in GUARDED.items() if "{job_id}" in route.path and "stream" not in name}
BODIES: dict[str, Any] = {
    "enqueue_job": {"task": "convert", "args": {"pdf": "a.pdf"}},
    "enqueue_jobs": {"jobs": [{"task": "convert", "args": {"pdf": "a.pdf"}}]},
    "discard_dead_letter": {"reason": "of no use"},
    "pause_scope": {"kind": "queue", "name": "press"},
    "resume_scope": {"kind": "queue", "name": "press"},
    "begin_operation": {"action": "redrive", "filter": {}, "dry_run": True},
    "create_key": {"role": "viewer"},
    "set_policy": {"key": "tasks.convert.max_attempts", "value": 3},
    "unset_policy": {"key": "tasks.convert.max_attempts"},
}

pytestmark = pytest.mark.anyio


async def ask(
    house: House, route: ApiRoute, headers: dict[str, str], job_id: str, **changes: Any
) -> httpx2.Response:
    path = route.path.replace("{job_id}", job_id).replace("{owner:path}", "alice")
    path = re.sub(r"\{[a-z_]+(:path)?\}", "unknown", path)
    body = BODIES.get(route.name)
    async with house.client("192.0.2.1", headers=headers, timeout=30) as client:
        answer = await client.request(
            min(route.methods or ()), path, json=None if body is None else body | changes
        )
    assert_as_documented(route, answer)
    return answer


@pytest.mark.parametrize("name", GUARDED)
async def test_nobody_is_let_in_without_a_key_or_with_one_that_nobody_made(name: str) -> None:  # E66
    job_id = await HOUSE.enqueue("alice")
    for headers in ({}, {"Authorization": "Bearer made-up"}, {"Authorization": "Basic YTpi"}):
        answer = await ask(HOUSE, GUARDED[name], headers, job_id)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "UNAUTHENTICATED"
        assert "alice" not in answer.text


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", [name for name in GUARDED if "stream" not in name])
async def test_a_role_may_do_exactly_what_its_action_says(name: str, role: Role) -> None:  # E66
    route = GUARDED[name]
    assert route.action is not None
    job_id = await HOUSE.dead("alice")
    answer = await ask(HOUSE, route, await HOUSE.as_(role, "alice" if role is Role.OWNER else None), job_id)
    if role in route.action.allowed_to:
        assert answer.status_code not in (401, 403, 405, 500), answer.text
    else:
        assert answer.status_code == 403
        assert answer.json()["code"] == "FORBIDDEN"


@pytest.mark.parametrize("name", OWNED)
async def test_anothers_job_is_forbidden_and_an_unknown_one_is_not_found(name: str) -> None:  # E66
    route = OWNED[name]
    job_id = await HOUSE.dead("alice")
    own = await ask(HOUSE, route, await HOUSE.as_(Role.OWNER, "alice"), job_id)
    assert own.status_code not in (401, 403, 404, 405, 422, 500), own.text

    mine_not = await HOUSE.dead("alice")
    for owner in ("mallory", "alic", "alice/x", "ALICE"):
        other = await ask(HOUSE, route, await HOUSE.as_(Role.OWNER, owner), mine_not)
        assert (other.status_code, other.json()["code"]) == (403, "FORBIDDEN")
        assert "alice" not in other.text
    nobodys = await HOUSE.dead(None)
    other = await ask(HOUSE, route, await HOUSE.as_(Role.OWNER, "mallory"), nobodys)
    assert other.status_code == 403

    for unknown in ("019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42", "7", "..", job_id.upper(), f"{job_id}%00"):
        answer = await ask(HOUSE, route, await HOUSE.as_(Role.OWNER, "mallory"), unknown)
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND"), unknown


async def test_what_another_does_with_a_job_changes_nothing() -> None:  # E66
    job_id = await HOUSE.enqueue("alice")
    before = await HOUSE.app.jobs.get(job_id)
    for route in OWNED.values():
        await ask(HOUSE, route, await HOUSE.as_(Role.OWNER, "mallory"), job_id)
    assert await HOUSE.app.jobs.get(job_id) == before
    assert len(await HOUSE.app.events.list(job_id=job_id)) == 1


@pytest.mark.parametrize("path", ["jobs", "dead-letters", "dead-letters/groups"])
async def test_lists_show_an_owner_its_own_alone(path: str) -> None:  # E66
    house = HOUSE
    alices, bobs = await house.dead("alice"), await house.dead("bob")
    async with house.client(headers=await house.as_(Role.OWNER, "bob")) as client:
        shown = await client.get(f"{API}/{path}")
        assert shown.status_code == 200
        assert alices not in shown.text
        assert bobs in shown.text
        assert (await client.get(f"{API}/{path}?owner=alice")).status_code == 403
        assert (await client.get(f"{API}/{path}?owner=bob")).text == shown.text
    async with house.client(headers=await house.as_(Role.VIEWER)) as client:
        of_alice = await client.get(f"{API}/{path}?owner=alice")
        assert bobs not in of_alice.text


async def test_an_owner_enqueues_for_itself_alone() -> None:  # E66
    async with HOUSE.client(headers=await HOUSE.as_(Role.OWNER, "bob")) as client:
        body = {"task": "convert", "args": {"pdf": "a"}}
        made = await client.post(f"{API}/jobs", json=body)
        assert (await HOUSE.app.jobs.get(made.json()["id"])).owner == "bob"
        assert (await client.post(f"{API}/jobs", json=body | {"owner": "bob"})).status_code == 201
        assert (await client.post(f"{API}/jobs", json=body | {"owner": "alice"})).status_code == 403
        many = {"jobs": [body, body | {"owner": "alice"}]}
        before = await HOUSE.app.jobs.counts()
        assert (await client.post(f"{API}/jobs/batch", json=many)).status_code == 403
        assert await HOUSE.app.jobs.counts() == before
        assert (await client.get(f"{API}/owners/bob")).status_code == 200
        assert (await client.get(f"{API}/owners/alice")).status_code == 403


def test_what_is_open_is_listed() -> None:  # E66
    assert {name for name, route in ROUTES.items() if route.action is None} <= OPEN.keys()


def test_a_route_without_an_action_cannot_be_made() -> None:  # E66
    here = router("new")
    with pytest.raises(UsageError, match="has no action"):

        @here.get("/new")
        async def get_new() -> None: ...


def test_every_action_is_on_some_route() -> None:
    there = {route.action for route in ROUTES.values()}
    assert {Action.ENQUEUE, Action.SEE, Action.STEER, Action.LOOK, Action.OPERATE} <= there
    assert allows(Action.SEE)["openapi_extra"]["x-action"] == "see"

"""The life of a job through the API: enqueued, seen, steered; and the document that tells of it."""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from typing import Any

import httpx2
import pytest

from holdfast.engine.access import Role
from holdfast.jobs.job import Lane, Settlement
from holdfast.jobs.verdict import Bury, Failure
from holdfast.server.assembly import table
from holdfast.server.routes import document
from tests.server.world import API, House, assert_as_documented, new_house

pytestmark = pytest.mark.anyio

HOUSE = new_house()
ROUTES = {route.name: route for route in table(HOUSE.site)}


async def call(
    wanted: str,
    body: Any = None,
    /,
    *,
    role: Role = Role.ADMIN,
    as_owner: str | None = None,
    headers: dict[str, str] | None = None,
    query: dict[str, Any] | None = None,
    house: House = HOUSE,
    **path: str,
) -> httpx2.Response:
    route = ROUTES[wanted]
    async with house.client(headers=await house.as_(role, as_owner) | (headers or {})) as client:
        url = route.path.replace(":path", "").format(**path)
        answer = await client.request(min(route.methods or ()), url, json=body, params=query)
    assert_as_documented(route, answer)
    return answer


async def test_jobs_are_found_and_steered_by_an_argument() -> None:
    house = new_house()
    ids = [await house.enqueue(pdf=name, pages=pages) for name, pages in (("a", 1), ("a", 2), ("b", 2))]

    async def found(*words: str) -> set[str]:
        page = await call("list_jobs", query={"arg": list(words)}, house=house)
        return {row["id"] for row in page.json()["jobs"]}

    assert await found("pdf=a") == set(ids[:2])
    assert await found("pdf=a", "pages=2") == {ids[1]}
    assert await found('pages="2"') == set()
    assert (await call("list_jobs", query={"arg": ["pdf"]}, house=house)).status_code == 422
    assert (await call("list_jobs", query={"arg": ["x=" + "[" * 400]}, house=house)).json()["jobs"] == []
    body = {"action": "cancel", "filter": {"args": {"pages": 2}}, "dry_run": True}
    assert (await call("begin_operation", body, house=house)).json()["matched"] == 2
    dead = {"action": "redrive", "filter": {"args": {"pages": 2}}, "dry_run": True}
    assert (await call("begin_operation", dead, house=house)).status_code == 422


@pytest.mark.parametrize("guess", [{"password": "hunter2"}, {"login": {"password": "hunter2"}}])
async def test_a_search_confirms_no_guess_of_a_hidden_argument(guess: dict[str, Any]) -> None:  # E63
    [[name, value]] = guess.items()
    query = {"arg": [f"{name}={json.dumps(value)}"]}
    listed = await call("list_jobs", query=query, role=Role.VIEWER)
    assert (listed.status_code, listed.json()["code"]) == (422, "INVALID")
    assert "hunter2" not in listed.text
    body = {"action": "cancel", "filter": {"args": guess}, "dry_run": True}
    assert (await call("begin_operation", body)).status_code == 422


async def test_a_job_is_enqueued_with_all_that_can_be_said_of_it() -> None:  # E66
    body = {
        "task": "convert",
        "args": {"pdf": "a.pdf", "pages": 3},
        "owner": "alice",
        "priority": "high",
        "queue": "express",
        "run_at": "2199-01-01T01:00:00+02:00",
        "deadline": "2199-06-01T00:00:00Z",
        "dedupe_key": "a.pdf",
        "dedupe_for": "1h",
        "key": "a",
        "tags": ["blue", "big"],
        "max_attempts": 7,
    }
    made = await call("enqueue_job", body)
    assert made.status_code == 201
    assert made.json() == {"id": made.json()["id"], "state": "queued", "duplicate": False}
    assert made.headers["location"] == f"{API}/jobs/{made.json()['id']}"
    row = await HOUSE.app.jobs.get(made.json()["id"])
    assert (row.owner, row.queue, row.tags, row.max_attempts) == ("alice", "express", ("blue", "big"), 7)
    assert row.payload == {"pdf": "a.pdf", "pages": 3}
    assert row.deadline_at is not None
    assert (row.run_at.astimezone(UTC).year, row.deadline_at.year, row.key) == (2198, 2199, "a")
    twin = await call("enqueue_job", body | {"run_at": None})
    assert (twin.status_code, twin.json()) == (200, made.json() | {"duplicate": True})
    for query in ({"tag": "blue"}, {"key": "a"}, {"queue": "express"}, {"owner": "alice"}):
        found = await call("list_jobs", query=query)
        assert [job["id"] for job in found.json()["jobs"]] == [row.id], query


async def test_an_unknown_task_is_told_with_the_names_that_are_near() -> None:  # E66
    answer = await call("enqueue_job", {"task": "convrt"})
    assert (answer.status_code, answer.json()["code"]) == (422, "UNKNOWN_TASK")
    assert answer.json()["detail"] == "no task named 'convrt'; did you mean convert?"


async def test_many_jobs_are_stored_together_or_not_at_all() -> None:  # E46, E66
    good = {"task": "note", "args": {"text": "x"}}
    before = await HOUSE.app.jobs.counts()
    refused = await call("enqueue_jobs", {"jobs": [good] * 50 + [good | {"args": {}}]})
    assert refused.status_code == 422
    assert await HOUSE.app.jobs.counts() == before
    made = await call("enqueue_jobs", {"jobs": [good] * 50})
    assert made.status_code == 201
    assert len({job["id"] for job in made.json()["jobs"]}) == 50
    assert (await call("enqueue_jobs", {"jobs": []})).status_code == 422


async def test_a_job_is_seen_with_its_events_attempts_and_explanation() -> None:  # E28, E66
    job_id = await HOUSE.dead("alice")
    row = (await call("get_job", job_id=job_id)).json()
    assert (row["state"], row["error_code"], row["error_message"]) == ("failed", "BOOM", "It went wrong.")
    assert row["failed_at"] == row["finished_at"] is not None
    assert row.get("args") is None
    assert (await call("get_job", query={"include": "args"}, job_id=job_id)).json()["args"] == {
        "pdf": "a.pdf"
    }
    events = (await call("get_job_events", job_id=job_id)).json()["events"]
    assert [event["kind"] for event in events] == ["queued", "processing", "failed"]
    [attempt] = (await call("get_job_attempts", job_id=job_id)).json()["attempts"]
    assert (attempt["outcome"], attempt["error_detail"]) == ("failed", "RuntimeError: boom")
    [attempt] = (await call("get_job_attempts", job_id=job_id, role=Role.OWNER, as_owner="alice")).json()[
        "attempts"
    ]
    assert attempt["error_detail"] is None  # where it broke is not for owners
    explained = (await call("explain_job", job_id=job_id)).json()
    assert explained["reason"] == "failed"
    assert (await call("get_job_late_results", job_id=job_id)).json() == {"late_results": [], "next": None}


async def test_a_result_is_there_once_the_job_is_complete() -> None:  # E66
    waiting = await HOUSE.app.tasks["note"].options(queue="once").enqueue(text="done")
    early = await call("get_job_result", job_id=waiting.id)
    assert (early.status_code, early.json()["code"]) == (409, "NOT_READY")
    await HOUSE.app.run_worker(until_idle=True, queues=["once"])
    ready = await call("get_job_result", job_id=waiting.id)
    assert ready.json() == {"id": waiting.id, "state": "complete", "result": "done"}
    assert (await call("get_job", job_id=waiting.id)).json()["result"] == "done"
    failed = await call("get_job_result", job_id=await HOUSE.dead())
    assert (failed.status_code, failed.json()["code"]) == (409, "JOB_FAILED")
    assert failed.json()["error_code"] == "BOOM"


async def test_whoever_read_an_older_version_does_not_act_on_it() -> None:  # E33, E66
    job_id = await HOUSE.dead("alice")
    tag = (await call("get_job", job_id=job_id)).headers["etag"]
    assert (await call("get_job", job_id=job_id, headers={"If-None-Match": tag})).status_code == 304
    for name in ("retry_job", "cancel_job"):
        refused = await call(name, job_id=job_id, headers={"If-Match": '"0-0-0"'})
        assert (refused.status_code, refused.json()["code"]) == (412, "PRECONDITION_FAILED")
    retried = await call("retry_job", job_id=job_id, headers={"If-Match": tag})
    assert (retried.status_code, retried.json()["state"]) == (200, "queued")
    assert retried.json()["queue_position"] >= 1
    assert (await call("cancel_job", job_id=job_id, headers={"If-Match": tag})).status_code == 412
    newer = (await call("get_job", job_id=job_id, headers={"If-None-Match": tag})).headers["etag"]
    cancelled = await call("cancel_job", {"reason": "enough"}, job_id=job_id, headers={"If-Match": newer})
    assert cancelled.json() == {"id": job_id, "state": "cancelled"}
    last = (await HOUSE.app.events.list(job_id=job_id))[-1]
    assert last.meta["reason"] == "enough"
    assert last.meta["by"].startswith("key:admin")
    again = await call("cancel_job", job_id=job_id)
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")


async def test_a_job_is_retried_with_other_arguments() -> None:  # E33, E49, E66
    job_id = await HOUSE.dead("alice")
    refused = await call("retry_job", {"args": {"pdv": "b.pdf"}}, job_id=job_id)
    assert (refused.status_code, (await HOUSE.app.jobs.get(job_id)).state) == (422, "failed")
    owner = {"role": Role.OWNER, "as_owner": "alice"}
    assert (await call("retry_job", {"args": {"pdf": "b.pdf"}}, job_id=job_id, **owner)).status_code == 200  # type: ignore[arg-type]
    assert (await HOUSE.app.jobs.get(job_id)).payload == {"pdf": "b.pdf"}
    assert (await HOUSE.app.events.list(job_id=job_id))[-1].meta["edited"] == ["pdf"]


async def test_dead_letters_are_redriven_and_discarded_once() -> None:  # E32, E66
    one, other = await HOUSE.dead("alice"), await HOUSE.dead("alice")
    letter = (await call("get_dead_letter", job_id=one)).json()
    assert (letter["code"], letter["fingerprint"], letter["detail"]) == (
        "BOOM",
        "cafe",
        "RuntimeError: boom",
    )
    groups = (await call("list_dead_letter_groups", query={"owner": "alice"})).json()["groups"]
    assert (groups[0]["code"], groups[0]["message"]) == ("BOOM", "RuntimeError: boom")
    as_owner = await call("list_dead_letter_groups", role=Role.OWNER, as_owner="alice")
    assert [one["message"] for one in as_owner.json()["groups"]] == [
        "It went wrong."
    ]  # details are not for owners
    assert (await call("redrive_dead_letter", {"to_queue": "slow"}, job_id=one)).status_code == 200
    assert (await HOUSE.app.jobs.get(one)).queue == "slow"
    assert (await call("redrive_dead_letter", job_id=one)).status_code == 404
    assert (await call("discard_dead_letter", job_id=other)).status_code == 422  # it must be said why
    assert (await call("discard_dead_letter", {"reason": "old"}, job_id=other)).json()["state"] == "failed"
    assert (await call("discard_dead_letter", {"reason": "old"}, job_id=other)).status_code == 404


async def test_a_preview_hides_secret_arguments_and_says_what_a_patch_changes() -> None:  # E32 E66
    house = new_house()

    @house.app.task(name="login", retry=1)
    async def login(password: str, user: dict[str, str] | None = None) -> None: ...

    handle = await login.options(owner="otto").enqueue("hunter2", {"name": "ann", "token": "t0"})
    store = (await house.app.runtime.engine()).store
    session = await store.open_session("w", timedelta(minutes=1))
    [one] = await store.claim(session, [Lane("default", "login", fair=True)], 1)
    await store.settle([Settlement(one.lease, Bury(Failure("BOOM", "It went wrong.")), one.attempt)])
    body: dict[str, Any] = {"action": "redrive", "filter": {"task": ["login"]}, "canary": 1}
    for guess in ("hunter2", "other"):  # right or wrong, the answer is the same
        body["patch"] = {"password": guess, "user": {"token": guess, "name": "bob"}}
        shown = (await call("begin_operation", body | {"dry_run": True}, house=house)).json()
        assert (shown["matched"], shown["is_capped"], shown["skipped"]) == (1, False, {})
        [sample] = shown["sample"]
        assert sample["id"] == handle.id
        assert sample["before"] == {"password": "***", "user": {"name": "ann", "token": "***"}}
        assert sample["after"] == {"password": "***", "user": {"name": "bob", "token": "***"}}
    begun = (await call("begin_operation", body, house=house)).json()
    assert begun["options"]["patch"]["password"] == "***"
    assert (begun["phase"], begun["ended"], begun["skipped"], begun["next_at"]) == ("canary", 0, {}, None)
    await call("cancel_operation", operation_id=begun["id"], house=house)
    [ended] = [one for one in await house.app.events.list(limit=10_000) if one.kind == "operation_ended"][-1:]
    assert ended.meta["by"].startswith("key:admin")
    wrongs: list[dict[str, Any]] = [
        {"canary": 0},
        {"canary": 501},
        {"ramp_from": 1},
        {"stop_above": 1.5},
        {"patch": {}},
        {"patch": {"passwort": "x"}},
        {"filter": {}},
        {"action": "cancel", "patch": None},
    ]
    for wrong in wrongs:
        refused = await call("begin_operation", body | wrong, house=house)
        assert refused.status_code == 422, wrong


async def test_an_operation_counts_begins_and_can_be_cancelled_by_whom_it_belongs_to() -> None:  # E32, E66
    for owner in ("otto", "otto", "olga"):
        await HOUSE.dead(owner)
    ask = {"action": "redrive", "filter": {"task": ["convert"]}, "rate": 5}
    otto: dict[str, Any] = {"role": Role.OWNER, "as_owner": "otto"}
    counted = await call("begin_operation", ask | {"dry_run": True}, **otto)
    assert (counted.status_code, counted.json()["dry_run"], counted.json()["matched"]) == (200, True, 2)
    assert counted.json()["waiting"] is None  # work of others
    assert (await call("begin_operation", ask | {"dry_run": True})).json()["waiting"] is not None
    assert (await call("list_operations", **otto)).json() == {"operations": []}
    begun = await call("begin_operation", ask, **otto)
    assert (begun.status_code, begun.json()["matched"], begun.json()["progress"]) == (202, 2, "running")
    assert begun.json()["filter"]["owner"] == "otto"
    number = begun.json()["id"]
    assert begun.headers["location"].endswith(number)
    everything = ask | {"filter": {"owner": "olga"}}
    assert (await call("begin_operation", everything, **otto)).status_code == 403
    for name in ("get_operation", "cancel_operation"):
        other = await call(name, operation_id=number, role=Role.OWNER, as_owner="olga")
        assert (other.status_code, other.json()["code"]) == (403, "FORBIDDEN")
    assert (await call("list_operations", role=Role.OWNER, as_owner="olga")).json() == {"operations": []}
    assert [one["id"] for one in (await call("list_operations")).json()["operations"]] == [number]
    ended = await call("cancel_operation", operation_id=number, **otto)
    assert ended.json()["progress"] == "cancelled"
    assert (await call("get_operation", operation_id="nothing")).status_code == 404
    for bad in ({"action": "retry", "filter": {"fingerprint": "x"}}, {"action": "discard", "filter": {}}):
        assert (await call("begin_operation", bad)).status_code == 422


async def test_keys_are_made_rotated_and_revoked_and_their_secret_is_told_once() -> None:  # E66
    made = await call("create_key", {"role": "owner", "owner": "kim", "name": "laptop", "lasts": "30d"})
    secret = made.json()["secret"]
    bearer = {"Authorization": f"Bearer {secret}"}
    async with HOUSE.client(headers=bearer) as client:
        assert (await client.get(f"{API}/jobs")).status_code == 200
        assert (await client.get(f"{API}/workers", params={"x": secret})).json()["code"] == "KEY_IN_URL"
    listed = await call("list_keys")
    assert secret not in listed.text
    rotated = await call("rotate_key", {"overlap": "1h"}, key_id=made.json()["id"])
    assert rotated.json()["secret"] != secret
    for one in (secret, rotated.json()["secret"]):
        async with HOUSE.client(headers={"Authorization": f"Bearer {one}"}) as client:
            assert (await client.get(f"{API}/jobs")).status_code == 200
    await call("revoke_key", key_id=rotated.json()["id"])
    async with HOUSE.client(headers={"Authorization": f"Bearer {rotated.json()['secret']}"}) as client:
        assert (await client.get(f"{API}/jobs")).status_code == 401
    assert (await call("revoke_key", key_id="nothing")).status_code == 404
    for bad in (
        {"role": "owner"},
        {"role": "king"},
        {"role": "admin", "owner": "kim"},
        {"role": "viewer", "lasts": "0s"},
    ):
        assert (await call("create_key", bad)).status_code == 422


def test_the_document_names_every_route_once_with_its_problems_and_roles() -> None:  # E66
    made = document()
    assert made["openapi"].startswith("3.1")
    operations = [one for methods in made["paths"].values() for one in methods.values()]
    names = [one["operationId"] for one in operations]
    assert len(names) == len(set(names)) == len(ROUTES)
    for one in operations:
        assert one["summary"] or one["description"]
        if one["x-action"] != "open":
            assert one["security"] == [{"key": []}]
            assert {"400", "401", "403", "404", "405", "413", "415", "422", "429", "500", "503"} <= one[
                "responses"
            ].keys()
    problem = made["components"]["schemas"]["Problem"]
    assert "NOT_FOUND" in problem["properties"]["code"]["enum"]
    assert "HTTPValidationError" not in made["components"]["schemas"]

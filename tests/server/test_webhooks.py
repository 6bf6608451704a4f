"""Webhooks over HTTP: made and steered by those they belong to, and messages that are signed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.engine.access import Role
from holdfast.webhooks.delivery import delivery
from holdfast.webhooks.signature import sign
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio
URL = "https://1.1.1.1/hook"
STEPS = ("rotate-secret", "retire-secret", "disable", "enable", "test", "replay")


@pytest.fixture
def house() -> House:
    return new_house(new_app())


async def test_an_owner_makes_and_steers_its_own_webhooks_alone(house: House) -> None:  # E61 E66
    async with (
        house.client(headers=await house.as_(Role.OWNER, "ann")) as ann,
        house.client(headers=await house.as_(Role.OWNER, "bob")) as bob,
        house.client(headers=await house.as_(Role.OPERATOR)) as operator,
    ):
        made = await ann.post(
            f"{API}/webhooks", json={"url": URL, "events": ["complete"], "description": "ours"}
        )
        assert made.status_code == 201
        told = made.json()
        assert (told["owner"], told["secret"][:6], told["secrets"]) == ("ann", "whsec_", 1)
        assert (await ann.post(f"{API}/webhooks", json={"url": URL, "owner": "bob"})).status_code == 403
        here = f"{API}/webhooks/{told['id']}"
        assert (await ann.get(here)).json() == {k: v for k, v in told.items() if k != "secret"}
        assert [one["id"] for one in (await operator.get(f"{API}/webhooks")).json()["webhooks"]] == [
            told["id"]
        ]
        assert (await bob.get(f"{API}/webhooks")).json() == {"webhooks": []}
        for method, path in (
            ("GET", here),
            ("DELETE", here),
            *(("POST", f"{here}/{step}") for step in STEPS),
        ):
            refused = await bob.request(method, path)
            assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN"), path
            unknown = await bob.request(method, path.replace(told["id"], "wh_unknown"))
            assert unknown.status_code == 404
        rotated = (await ann.post(f"{here}/rotate-secret")).json()
        assert rotated["secrets"] == 2
        assert rotated["secret"] != told["secret"]
        assert (await ann.post(f"{here}/retire-secret")).json()["secrets"] == 1
        disabled = (await ann.post(f"{here}/disable")).json()
        assert disabled["disabled_reason"].startswith("by key:")
        assert (await ann.post(f"{here}/replay")).status_code == 409
        assert (await ann.post(f"{here}/enable")).json()["disabled_at"] is None
        begun = await ann.post(f"{here}/replay", json={"after": "0"})
        assert (begun.status_code, begun.json()["action"], begun.json()["owner"]) == (202, "replay", "ann")
        assert (await ann.get(begun.headers["location"])).json()["progress"] == "running"
        assert (await bob.get(begun.headers["location"])).status_code == 403
        assert (await ann.post(f"{here}/replay")).status_code == 409
        assert (await ann.post(f"{here}/test")).status_code == 202
        assert (await ann.delete(here)).status_code == 204
        assert (await ann.get(here)).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": "http://127.0.0.1/"},
        {"url": "http://169.254.169.254/latest/meta-data"},
        {"url": "http://localhost/"},
        {"url": "http://a@1.1.1.1/"},
        {"url": "file:///etc/passwd"},
        {"url": "https://1.1.1.1:5432/"},
        {"url": URL, "events": ["finished"]},
        {"url": URL, "secrets": ["whsec_x"]},
        {"url": URL, "inbound": True},
        {"url": URL, "disabled_at": None},
        {"url": 7},
    ],
)
async def test_a_webhook_that_must_not_be_is_refused(house: House, body: dict[str, Any]) -> None:  # E61
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        refused = await client.post(f"{API}/webhooks", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "INVALID")
        assert (await client.get(f"{API}/webhooks")).json() == {"webhooks": []}


async def test_there_is_an_end_to_the_webhooks_of_an_owner(house: House) -> None:
    async with house.client(headers=await house.as_(Role.OWNER, "ann")) as ann:
        for _ in range(20):
            assert (await ann.post(f"{API}/webhooks", json={"url": URL})).status_code == 201
        assert (await ann.post(f"{API}/webhooks", json={"url": URL})).status_code == 409


async def test_a_signed_message_asks_for_a_retry_without_a_key(house: House) -> None:  # E61
    async with (
        house.client("192.0.2.1") as anybody,
        house.client(headers=await house.as_(Role.OWNER, "ann")) as ann,
    ):
        made = (await ann.post(f"{API}/webhooks/inbound", json={"description": "from the bank"})).json()
        anns, bobs = await house.dead("ann"), await house.dead("bob")

        async def ask(
            job_id: str, name: str = "msg_1", secret: str = made["secret"], **changed: str
        ) -> tuple[int, str]:
            body = f'{{"action":"retry","job":"{job_id}"}}'.encode()
            headers = sign([secret], name, datetime.now(UTC), body) | changed
            answer = await anybody.post(f"{API}/inbound/{made['id']}", content=body, headers=headers)
            return answer.status_code, answer.json().get("code") or answer.json()["job_id"]

        assert await ask(anns) == (202, anns)
        assert await ask(anns) == (202, anns)
        assert await ask(bobs) == (403, "FORBIDDEN")
        assert await ask("0190a0b0-1111-7abc-8def-0123456789ab", "msg_2") == (404, "NOT_FOUND")
        assert await ask(anns, "msg_3", "whsec_" + "A" * 43 + "=") == (401, "UNAUTHENTICATED")
        assert await ask(anns, "msg_4", **{"webhook-timestamp": "1"}) == (401, "UNAUTHENTICATED")
        assert await ask(bobs, "msg_1b") == (403, "FORBIDDEN")
        unsigned = await anybody.post(f"{API}/inbound/{made['id']}", json={"action": "retry", "job": anns})
        assert unsigned.status_code == 401
        nobody = await anybody.post(f"{API}/inbound/wh_nobody", json={"action": "retry", "job": anns})
        assert nobody.status_code == 401
        assert (await house.app.jobs.list(task="holdfast.inbound")).next is None
        assert len((await house.app.jobs.list(task="holdfast.inbound")).rows) == 1


TEST_PATHS = ("", "/events", "/attempts", "/late-results", "/explain")


async def test_an_owner_reads_the_job_that_tests_its_webhook_and_changes_nothing_of_it(house: House) -> None:
    async with (
        house.client(headers=await house.as_(Role.OWNER, "ann")) as ann,
        house.client(headers=await house.as_(Role.OWNER, "bob")) as bob,
        house.client(headers=await house.as_(Role.OPERATOR)) as operator,
    ):
        hook = (await ann.post(f"{API}/webhooks", json={"url": URL})).json()["id"]
        job_id = (await ann.post(f"{API}/webhooks/{hook}/test")).json()["job_id"]
        for path in TEST_PATHS:
            assert (await ann.get(f"{API}/jobs/{job_id}{path}")).status_code == 200, path
            assert (await operator.get(f"{API}/jobs/{job_id}{path}")).status_code == 200, path
            assert (await bob.get(f"{API}/jobs/{job_id}{path}")).status_code == 403, path
        assert (await ann.get(f"{API}/jobs/{job_id}/result")).json()["code"] == "NOT_READY"
        for step in ("retry", "cancel"):
            assert (await ann.post(f"{API}/jobs/{job_id}/{step}")).status_code == 403, step
        everybodys = (await operator.post(f"{API}/webhooks", json={"url": URL})).json()["id"]
        other = (await operator.post(f"{API}/webhooks/{everybodys}/test")).json()["job_id"]
        assert (await ann.get(f"{API}/jobs/{other}")).status_code == 403
        sent = delivery(hook, "m", "{}", house.app.runtime.new_id())  # a message about somebody's job
        await (await house.app.runtime.engine()).enqueue([sent])
        assert (await ann.get(f"{API}/jobs/{sent.id}")).status_code == 403


async def test_the_jobs_of_webhooks_are_in_no_list_and_no_count_unless_they_are_asked_for(
    house: House,
) -> None:
    async with house.client(headers=await house.as_(Role.OPERATOR)) as operator:
        mine = await house.enqueue("ann")
        hook = (await operator.post(f"{API}/webhooks", json={"url": URL})).json()["id"]
        sent = (await operator.post(f"{API}/webhooks/{hook}/test")).json()["job_id"]

        async def listed(query: str) -> set[str]:
            return {one["id"] for one in (await operator.get(f"{API}/jobs{query}")).json()["jobs"]}

        async def matched(**where: Any) -> int:
            body = {"action": "cancel", "filter": where, "dry_run": True}
            return int((await operator.post(f"{API}/operations", json=body)).json()["matched"])

        assert await listed("") == {mine}
        assert await listed("?internal=true") == {mine, sent}
        assert await listed("?task=holdfast.webhook") == {sent}
        assert [await matched(), await matched(internal=True), await matched(ids=[sent])] == [1, 2, 1]
        for path in ("dead-letters", "dead-letters/groups"):
            assert (await operator.get(f"{API}/{path}?internal=true")).status_code == 200
        assert (await house.app.jobs.counts())["queued"] == 1
        assert (await house.app.jobs.counts(internal=True))["queued"] == 2
        assert [row.id for row in (await house.app.jobs.list()).rows] == [mine]
        assert len((await house.app.jobs.list(internal=True)).rows) == 2
        assert await house.app.jobs.count() == 1


async def test_a_page_is_not_empty_because_many_messages_came_last(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"holdfast.stores.{module}.search.MOST_READ", 5)
    house = new_house(new_app(database_url))
    async with house.app as app:
        mine = await house.enqueue("ann")
        new = [delivery("wh_x", f"m{number}", "{}", app.runtime.new_id()) for number in range(60)]
        await (await app.runtime.engine()).enqueue(new)
        assert [row.id for row in (await app.jobs.list(limit=10)).rows] == [mine]
        assert (await app.jobs.counts())["queued"] == 1

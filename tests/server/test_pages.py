"""Lists in pages, and cursors that are of one list only."""

from __future__ import annotations

import base64

import pytest

from holdfast.engine.access import Role
from tests.server.world import API, House, new_house

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def house() -> House:
    return new_house()


async def test_pages_show_every_job_once_in_order(house: House) -> None:  # E66
    made = [await house.enqueue("pager", pages=n) for n in range(23)]
    async with house.client(headers=await house.as_(Role.OWNER, "pager")) as client:
        seen: list[str] = []
        cursor: str | None = None
        while True:
            params = {"limit": "5"} | ({"cursor": cursor} if cursor else {})
            page = (await client.get(f"{API}/jobs", params=params)).json()
            seen += [job["id"] for job in page["jobs"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert seen == made[::-1]


async def test_events_and_dead_letters_come_in_pages_too(house: House) -> None:  # E66
    dead = sorted([await house.dead("undertaker") for _ in range(5)])
    async with house.client(headers=await house.as_(Role.OWNER, "undertaker")) as client:
        first = (await client.get(f"{API}/dead-letters?limit=3")).json()
        rest = (await client.get(f"{API}/dead-letters", params={"cursor": first["next"]})).json()
        assert [one["id"] for one in first["dead_letters"] + rest["dead_letters"]] == dead
        assert rest["next"] is None
        kinds: list[str] = []
        cursor = None
        while True:
            params = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
            page = (await client.get(f"{API}/jobs/{dead[0]}/events", params=params)).json()
            kinds += [event["kind"] for event in page["events"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert kinds == [event.kind for event in await house.app.events.list(job_id=dead[0])]


@pytest.mark.parametrize(
    ("path", "rows", "name"), [("lanes", "lanes", "label"), ("queues", "queues", "name")]
)
async def test_lanes_and_queues_come_in_pages(path: str, rows: str, name: str) -> None:  # E66 E25
    house = new_house()
    long = "q" * 400 + "ü" * 100
    wanted = [f"queue {number:03}" for number in range(250)] + [long]
    task = house.app.tasks["note"]
    for queue in wanted:
        await task.options(queue=queue, owner="alice").enqueue("x")
    async with house.client(headers=await house.as_(Role.OPERATOR)) as client:
        seen: list[str] = []
        cursor: str | None = None
        pages = 0
        while cursor is not None or not pages:
            page = (await client.get(f"{API}/{path}", params={"cursor": cursor} if cursor else {})).json()
            assert len(page[rows]) <= 100
            assert all(row["waiting"] == 1 for row in page[rows])
            seen += [row[name] for row in page[rows]]
            cursor, pages = page["next"], pages + 1
        assert seen == sorted(queue if name == "name" else f"{queue}/note" for queue in wanted)
        assert (await client.get(f"{API}/{path}?limit=1000000")).json()["next"] is None
        other = "queues" if path == "lanes" else "lanes"
        strange = (await client.get(f"{API}/{path}?limit=250")).json()["next"]
        assert (await client.get(f"{API}/{other}", params={"cursor": strange})).status_code == 400


async def test_a_cursor_that_was_changed_or_is_anothers_is_refused(house: House) -> None:  # E66
    for owner in ("ann", "ben"):
        for n in range(3):
            await house.enqueue(owner, pages=n)
    async with house.client(headers=await house.as_(Role.OWNER, "ann")) as client:
        cursor = (await client.get(f"{API}/jobs?limit=1")).json()["next"]
        raw = base64.urlsafe_b64decode(cursor + "==")
        forged = [
            cursor[:-1],
            cursor + "A",
            cursor[::-1],
            "A" + cursor[1:],
            cursor + "=",
            "x",
            "",
            "é",
            "0",
            "' OR 1=1",
            base64.urlsafe_b64encode(raw[8:]).decode(),
            base64.urlsafe_b64encode(raw[:8] + b"999").decode(),
            base64.urlsafe_b64encode(raw[:8]).decode(),
        ]
        for text in forged:
            answer = await client.get(f"{API}/jobs", params={"cursor": text})
            assert (answer.status_code, answer.json()["code"]) == (400, "BAD_CURSOR"), text
        for place in range(len(raw)):
            bent = bytes([*raw[:place], raw[place] ^ 1, *raw[place + 1 :]])
            text = base64.urlsafe_b64encode(bent).rstrip(b"=").decode()
            assert (await client.get(f"{API}/jobs", params={"cursor": text})).status_code == 400
        for path in ("jobs?state=failed&", "jobs?tag=x&", "dead-letters?"):
            assert (await client.get(f"{API}/{path}cursor={cursor}")).status_code == 400
        assert (await client.get(f"{API}/jobs", params={"cursor": "x" * 401})).status_code == 422
        assert (await client.get(f"{API}/jobs", params={"cursor": cursor})).status_code == 200
    for other in (await house.as_(Role.OWNER, "ben"), await house.as_(Role.ADMIN)):
        async with house.client(headers=other) as client:
            assert (await client.get(f"{API}/jobs", params={"cursor": cursor})).status_code == 400

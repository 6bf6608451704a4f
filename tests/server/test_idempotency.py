"""`Idempotency-Key`: a request that is sent again is answered again and done once, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.engine.access import Role
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

BODY = {"task": "convert", "args": {"pdf": "a.pdf"}}


@pytest.fixture
async def house(store_url: str) -> AsyncIterator[House]:
    app = new_app(store_url)
    async with app:
        yield new_house(app)


async def post(
    house: House, name: str | None, body: Any = BODY, owner: str = "ann", path: str = "jobs"
) -> Any:
    headers = await house.as_(Role.OWNER, owner) | ({} if name is None else {"Idempotency-Key": name})
    async with house.client(headers=headers) as client:
        return await client.post(f"{API}/{path}", json=body)


async def stored(house: House) -> int:
    return sum((await house.app.jobs.counts()).values())


async def test_a_thousand_at_once_make_one_job(house: House) -> None:  # E37
    headers = await house.as_(Role.OWNER, "ann") | {"Idempotency-Key": '"one-of-its-kind"'}
    async with house.client(headers=headers, timeout=60) as client:
        answers = await asyncio.gather(*(client.post(f"{API}/jobs", json=BODY) for _ in range(1000)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert await stored(house) == 1


async def test_the_first_answer_is_given_again_whatever_became_of_the_job(house: House) -> None:  # E37
    first = await post(house, "k1")
    await house.app.jobs.cancel(first.json()["id"])
    again = await post(house, "k1")
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    reordered = {"args": {"pdf": "a.pdf"}, "task": "convert"}
    assert (await post(house, '"k1"', reordered)).json() == first.json()


async def test_the_same_key_with_other_content_is_refused(house: House) -> None:  # E37
    await post(house, "k1")
    before = await stored(house)
    for other in (BODY | {"args": {"pdf": "b.pdf"}}, BODY | {"priority": 1}, BODY | {"owner": "ann"}):
        answer = await post(house, "k1", other)
        assert (answer.status_code, answer.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert await stored(house) == before


async def test_keys_of_others_and_of_other_routes_are_other_keys(house: House) -> None:  # E37
    ids = {(await post(house, "k1", owner=owner)).json()["id"] for owner in ("ann", "ben")}
    many = await post(house, "k1", {"jobs": [BODY, BODY]}, path="jobs/batch")
    again = await post(house, "k1", {"jobs": [BODY, BODY]}, path="jobs/batch")
    assert again.json() == many.json()
    ids |= {job["id"] for job in many.json()["jobs"]}
    assert len(ids) == 4 == await stored(house)
    assert (await post(house, None)).json()["id"] not in ids


async def test_a_request_that_was_refused_may_be_mended_under_its_key(house: House) -> None:  # E37
    assert (await post(house, "k1", BODY | {"args": {}})).status_code == 422
    assert (await post(house, "k1")).status_code == 201


async def test_a_twin_is_told_as_one_again(house: House) -> None:  # E36, E37
    body = BODY | {"dedupe_key": "a.pdf"}
    first = await post(house, None, body)
    twin, again = await post(house, "k1", body), await post(house, "k1", body)
    assert twin.status_code == again.status_code == 200
    assert twin.json() == again.json() == first.json() | {"duplicate": True}


@pytest.mark.parametrize(
    "name", ["", '""', '"', '"a', 'a"b', '"a\\x"', "a b", "ä", "x" * 256, '"' + "x" * 256 + '"', "\x7f"]
)
async def test_a_key_that_is_none_is_refused(name: str) -> None:  # E37
    house = HOUSE
    headers = [(name_.encode(), value.encode()) for name_, value in (await house.as_(Role.ADMIN)).items()]
    headers.append((b"idempotency-key", name.encode("latin-1")))
    async with house.client() as client:
        answer = await client.post(f"{API}/jobs", json=BODY, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
        twice = [*headers[:-1], (b"idempotency-key", b"a"), (b"idempotency-key", b"b")]
        assert (await client.post(f"{API}/jobs", json=BODY, headers=twice)).status_code == 400


async def test_quoted_and_bare_are_the_same_key() -> None:  # E37
    first = await post(HOUSE, '"a-\\"quoted\\"-key"')
    assert (await post(HOUSE, '"a-\\"quoted\\"-key"')).json() == first.json()
    bare = await post(HOUSE, "plain-key")
    assert (await post(HOUSE, '"plain-key"')).json() == bare.json()


HOUSE = new_house()

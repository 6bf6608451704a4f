"""`If-Match`: whoever acts on what they read is refused when another was there between, however late (E66)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from holdfast.engine import breakers
from holdfast.engine.access import Role
from holdfast.engine.tables.dependencies import swap_breaker
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

#: A move, what must be there for it, and what somebody else does after it was looked at and before it is made.
RACES: dict[str, tuple[str, str, str]] = {
    "jobs/{id}/retry": ("dead", "jobs.retry", "retry"),
    "jobs/{id}/cancel": ("queued", "jobs.cancel", "cancel and retry"),
    "dead-letters/{id}/redrive": ("dead", "dead_letters.redrive_one", "retry"),
    "dead-letters/{id}/discard": ("dead", "store.discard", "die again"),
}


@pytest.fixture
async def house(store_url: str) -> AsyncIterator[House]:
    app = new_app(store_url)
    async with app:
        yield new_house(app)


async def post(house: House, path: str, tag: str, body: Any = None) -> httpx2.Response:
    headers = await house.as_(Role.ADMIN) | {"If-Match": tag}
    async with house.client(headers=headers) as client:
        return await client.post(f"{API}/{path}", json=body)


async def tag_of(house: House, path: str) -> str:
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        return str((await client.get(f"{API}/{path}")).headers["etag"])


async def between(house: House, verb: str, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """The next time that *verb* is called, *meanwhile* happens first."""
    namespace, _, word = verb.rpartition(".")
    places = {"store": (await house.app.runtime.engine()).store} | vars(house.app)
    owner: Any = places[namespace]
    real = getattr(owner, word)

    async def late(*args: Any, **more: Any) -> Any:
        delattr(owner, word)
        await meanwhile()
        return await real(*args, **more)

    setattr(owner, word, late)


async def others(house: House, job_id: str, doing: str) -> None:
    app = house.app
    match doing:
        case "retry":
            await app.jobs.retry(job_id, by="somebody")
        case "cancel and retry":
            await app.jobs.cancel(job_id, by="somebody")
            await app.jobs.retry(job_id, by="somebody")
        case "die again":
            await app.jobs.retry(job_id, by="somebody")
            await house.dead()  # claims all that is in line …
            await app.jobs.cancel(job_id, by="somebody")  # … and this one is taken from it


async def test_a_change_between_the_look_and_the_move_is_noticed(house: House) -> None:  # E33 E66
    for path, (state, verb, doing) in RACES.items():
        job_id = await (house.dead() if state == "dead" else house.enqueue())
        here = path.replace("{id}", job_id)
        tag = await tag_of(house, here.rpartition("/")[0])
        await between(house, verb, lambda job_id=job_id, doing=doing: others(house, job_id, doing))  # type: ignore[misc]
        body = {"reason": "old"} if "discard" in path else None
        refused = await post(house, here, tag, body)
        assert (refused.status_code, refused.json()["code"]) == (412, "PRECONDITION_FAILED"), path
        by = [event.meta.get("by", "") for event in await house.app.events.list(job_id=job_id)]
        assert not [name for name in by if name.startswith("key:")], path


async def test_what_has_not_changed_is_moved_by_any_of_the_tags(house: House) -> None:  # E66
    for path, (state, _, _) in RACES.items():
        job_id = await (house.dead() if state == "dead" else house.enqueue())
        here = path.replace("{id}", job_id)
        tag = await tag_of(house, here.rpartition("/")[0])
        body = {"reason": "old"} if "discard" in path else None
        for none in ('"0-0-0"', '"queued-1-0-0-1"', "nonsense", '""', f'"{"9" * 5000}"', "", tag.strip('"')):
            assert (await post(house, here, none, body)).status_code == 412, (path, none)
        assert (await post(house, here, f'"queued-1-0-0-1", {tag}', body)).status_code == 200, path
    job_id = await house.enqueue()
    assert (await post(house, f"jobs/{job_id}/cancel", "*")).status_code == 200
    assert (await post(house, f"jobs/{job_id}/cancel", "*")).status_code == 409


async def test_a_breaker_that_its_workers_changed_meanwhile_is_not_forced(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:  # E20 E66
    await house.enqueue()
    app, here = house.app, "breakers/gateway"
    opened = await app.breakers.open("gateway")
    tag = await tag_of(house, here)
    assert tag == f'"{opened.version}"'

    async def late(*args: Any, **more: Any) -> bool:
        monkeypatch.setattr(breakers, "swap_breaker", swap_breaker)
        await app.breakers.try_("gateway", by="somebody")
        return await swap_breaker(*args, **more)

    monkeypatch.setattr(breakers, "swap_breaker", late)
    refused = await post(house, f"{here}/close", tag)
    assert (refused.status_code, refused.json()["code"]) == (412, "PRECONDITION_FAILED")
    [kept] = await app.breakers.list()
    assert kept.breaker.version == opened.version + 1
    for none in ('"0"', '"x"', f'"{"9" * 5000}"', ""):
        assert (await post(house, f"{here}/close", none)).status_code == 412
    assert (await post(house, f"{here}/close", await tag_of(house, here))).status_code == 200

"""What may be asked for, what is refused at once and how, who sees what (S1, E66)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import PayloadError, StoreUnavailable
from systems.screenshots.images import sweep
from tests.closed_addresses import CLOSED
from tests.systems.screenshots.api.world import ADMIN, PAGE, SHOTS, World
from tests.systems.screenshots.test_guard import bracketed

pytestmark = pytest.mark.anyio


REFUSED: list[tuple[Any, str, str]] = [
    ({"url": PAGE, "format": "gif"}, "BAD_FORMAT", "png, jpeg, webp, pdf"),
    ({"url": PAGE, "width": 5}, "BAD_SIZE", "a width from 16 to 3840 and a height from 16 to 4320"),
    ({"url": PAGE, "viewport": {"width": 100, "height": 9999}}, "BAD_SIZE", "4320"),
    ({"url": PAGE, "delay": 99}, "BAD_DELAY", "from 0 to 10 seconds"),
    ({"url": PAGE, "selector": ""}, "BAD_SELECTOR", "1 to 500 characters"),
    ({"url": PAGE, "quality": 50}, "BAD_QUALITY", "1 to 100"),
    ({"url": PAGE, "priority": "urgent"}, "VALIDATION_ERROR", "$.priority"),
    ({"url": PAGE, "width": 100, "viewport": {"width": 1, "height": 1}}, "VALIDATION_ERROR", "twice"),
    ({"url": PAGE, "colour": "red"}, "VALIDATION_ERROR", "colour"),
    ({}, "VALIDATION_ERROR", "url"),
    ({"url": ""}, "VALIDATION_ERROR", "$.url"),
    ({"url": "not a url"}, "TARGET_NOT_ALLOWED", "public web"),
    ({"url": "file:///etc/passwd"}, "TARGET_NOT_ALLOWED", "public web"),
    ({"url": "javascript:alert(1)"}, "TARGET_NOT_ALLOWED", "public web"),
    ([1], "VALIDATION_ERROR", "object"),
]


async def test_what_cannot_be_taken_is_refused_and_what_can_is_named(world: World) -> None:  # S1
    for body, error, says in REFUSED:
        refused = await world.ask("ann", "POST", SHOTS, body)
        assert (refused.status_code, refused.json()["error"]) == (422, error), body
        assert says in refused.json()["message"], body
        assert "\n" not in refused.json()["message"]
    assert await world.balance() == (100, 0, 0)  # nothing was asked for, nothing is paid


async def test_every_closed_address_is_refused_in_the_same_words(world: World) -> None:  # S1
    said = set()
    for address in CLOSED:
        refused = await world.ask("ann", "POST", SHOTS, {"url": f"http://{bracketed(address)}/"})
        assert (refused.status_code, refused.json()["error"]) == (422, "TARGET_NOT_ALLOWED"), address
        said.add(refused.text)
    assert len(said) == 1
    assert (await world.ask("ann", "GET", SHOTS)).json()["screenshots"] == []


async def test_a_body_that_is_no_json_or_too_large_is_refused(world: World) -> None:
    assert world._http is not None
    headers = {"authorization": f"Bearer {world.keys['ann']}"}
    for content, status in ((b"{", 400), (b"\xff", 400), (b'{"url": "' + b"x" * 30_000 + b'"}', 413)):
        refused = await world._http.post(SHOTS, content=content, headers=headers)
        assert refused.status_code == status
        assert refused.json()["error"] in ("VALIDATION_ERROR", "TOO_LARGE")


async def test_the_engines_own_door_takes_no_screenshots_past_this_one(world: World) -> None:  # S1 E66
    asked = {"task": "SCREENSHOT", "args": {"shot": {"url": "http://10.0.0.1/"}}}
    for path, body in (("jobs", asked), ("jobs/batch", {"jobs": [asked]}), ("jobs", {"task": "keep_books"})):
        assert (await world.ask("ann", "POST", f"/api/v1/{path}", body)).status_code == 403
        assert (await world.ask("nobody", "POST", f"/api/v1/{path}", body)).status_code == 401
    job_id = await world.shot()
    assert (await world.ask("ann", "GET", f"/api/v1/jobs/{job_id}")).json()["id"] == job_id
    assert (await world.ask("bob", "GET", f"/api/v1/jobs/{job_id}")).status_code == 403
    with pytest.raises(PayloadError, match="width from 16"):  # whoever puts it into line by hand is told, too
        await world.screenshots.screenshot.options(owner="user:7").enqueue_many(
            [{"shot": {"url": PAGE, "width": 5}}]
        )


async def test_a_request_that_is_sent_twice_is_one_job_and_one_price(world: World) -> None:  # S1 S3 E37
    first, second = [
        await world.ask("ann", "POST", SHOTS, {"url": PAGE}, idempotency_key="a-1") for _ in range(2)
    ]
    assert first.json()["jobId"] == second.json()["jobId"]
    other = await world.ask("ann", "POST", SHOTS, {"url": f"{PAGE}/2"}, idempotency_key="a-1")
    assert (other.status_code, "Idempotency-Key" in other.json()["message"]) == (422, True)
    bobs = await world.ask("bob", "POST", SHOTS, {"url": PAGE}, idempotency_key="a-1")
    assert bobs.json()["jobId"] != first.json()["jobId"]
    await world.ended(first.json()["jobId"])
    assert await world.balance() == (99, 0, 1)


async def test_an_owner_lists_its_own_page_by_page(world: World) -> None:  # S1 E66
    mine = [await world.shot(url=f"{PAGE}/{number}") for number in range(5)]
    await world.shot("bob")
    seen: list[str] = []
    after = ""
    while True:
        page = (await world.ask("ann", "GET", f"{SHOTS}?limit=2{after}")).json()
        seen += [one["jobId"] for one in page["screenshots"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == mine[::-1]
    assert len((await world.ask("viewer", "GET", SHOTS)).json()["screenshots"]) == 6
    for query, status in (("limit=many", 422), ("after=nonsense", 400)):
        refused = await world.ask("ann", "GET", f"{SHOTS}?{query}")
        assert (refused.status_code, refused.json()["error"]) == (status, "VALIDATION_ERROR")


async def test_nobody_sees_or_does_what_is_not_theirs(world: World) -> None:  # S1 E66
    job_id = await world.shot()
    await world.ended(job_id)
    for path in (f"{SHOTS}/{job_id}", f"{SHOTS}/{job_id}/image", f"{SHOTS}/{job_id}/audit"):
        assert (await world.ask("ann", "GET", path)).status_code == 200
        assert (await world.ask("viewer", "GET", path)).status_code == 200
        assert (await world.ask("bob", "GET", path)).status_code == 403
        assert (await world.ask("nobody", "GET", path)).status_code == 401
        assert (await world.ask("nobody", "GET", path, authorization="Bearer x")).status_code == 401
    assert (await world.ask("viewer", "POST", SHOTS, {"url": PAGE})).status_code == 403
    for path in ("analytics", "sla/breaches", "retry-scheduler", "workers/status", "jobs/stuck"):
        assert (await world.ask("ann", "GET", f"{ADMIN}/{path}")).status_code == 403, path
        assert (await world.ask("nobody", "GET", f"{ADMIN}/{path}")).status_code == 401, path
    housekeeping = await world.app.tasks["sweep_images"].enqueue()
    assert (await world.ask("operator", "GET", f"{SHOTS}/{housekeeping.id}")).status_code == 404


async def test_there_is_no_picture_before_it_is_taken_and_none_when_it_has_expired(
    make_world: Callable[..., World],
) -> None:  # S1 E38
    async with make_world().open(works=False) as world:
        job_id = await world.shot()
        early = await world.ask("ann", "GET", f"{SHOTS}/{job_id}/image")
        assert (early.status_code, early.json()["error"]) == (409, "NOT_READY")
        async with world.working():
            await world.ended(job_id)
        images = world.settings.images_dir
        assert [path.name.split(".")[0] for path in images.iterdir()] == [job_id]
        left_over = images / f"{job_id}.999.png"  # of an attempt that came too late
        left_over.write_bytes(b"late")
        assert await sweep(world.app, images) == 0
        in_two_hours = left_over.stat().st_mtime + 7200
        assert await sweep(world.app, images, now=in_two_hours) == 1
        assert not left_over.exists()
        assert (await world.ask("ann", "GET", f"{SHOTS}/{job_id}/image")).content == b"\x89PNG a picture"
        await world.app.operations.purge(results="0s")
        assert await sweep(world.app, images) == 1
        gone = await world.ask("ann", "GET", f"{SHOTS}/{job_id}/image")
        assert (gone.status_code, gone.json()["error"]) == (410, "EXPIRED")
        assert (await world.look(job_id))["imageUrl"] is None


async def test_a_database_that_is_away_is_a_matter_of_moments(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    """Ours and the engine's: told as 503, with a time to come again, and nothing of what the driver says."""

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("postgresql://ann:secret@10.0.0.5 refused")

    async def lost(*_: Any, **__: Any) -> Any:
        raise sqlite3.OperationalError("unable to open /srv/data/jobs.db")

    monkeypatch.setattr(world.app.jobs, "list", away)
    monkeypatch.setattr("systems.screenshots.web.site.analyse", lost)
    for who, path in (("ann", SHOTS), ("operator", f"{ADMIN}/analytics")):
        answer = await world.ask(who, "GET", path)
        assert (answer.status_code, answer.json()["error"]) == (503, "UNAVAILABLE")
        assert answer.headers["retry-after"] == "2"
        assert "secret" not in answer.text
        assert "/srv" not in answer.text


async def test_an_answer_never_tells_a_secret_or_a_path(world: World) -> None:  # E66
    job_id = await world.shot()
    shown = json.dumps([await world.ended(job_id), (await world.ask("ann", "GET", SHOTS)).json()])
    for secret in (str(world.folder), world.keys["ann"], "Traceback", "lease"):
        assert secret not in shown

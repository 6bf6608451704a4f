"""A retry by hand: every answer of the source document's tables, and what two at a time come to (S2, E33)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.contrib.credits import Credits
from systems.common.parts import Part
from systems.screenshots.codes import Code, message
from tests.systems.screenshots.api.world import POLICIES, SHOTS, Easel, World, eventually

pytestmark = pytest.mark.anyio

FAILING, HANGING = "https://example.com/fail/x", "https://example.com/hang/x"
MUST = "Job must be in FAILED status or stuck (>30 min processing)"


async def failed(world: World, who: str = "ann") -> str:
    job_id = await world.shot(who, FAILING)
    assert (await world.ended(job_id))["status"] == "FAILED"
    return job_id


# -- the table of errors ----------------------------------------------------------------------------------------------
async def test_a_job_that_is_being_processed_and_not_stuck_is_a_validation_error(world: World) -> None:  # S2
    job_id = await world.shot(url=HANGING)
    await world.running(job_id)
    refused = await world.retry(job_id)
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    assert {name: refused.json()[name] for name in ("error", "message", "status", "detail", "code")} == {
        "error": "VALIDATION_ERROR",
        "message": MUST,
        "status": 400,
        "detail": MUST,
        "code": "VALIDATION_ERROR",
    }


async def test_a_complete_job_is_a_validation_error(world: World) -> None:  # S2
    job_id = await world.shot()
    await world.ended(job_id)
    refused = await world.retry(job_id)
    assert (refused.status_code, refused.json()["error"], refused.json()["message"]) == (
        400,
        "VALIDATION_ERROR",
        MUST,
    )


async def test_a_job_that_is_queued_is_a_validation_error(make_world: Callable[..., World]) -> None:  # S2
    async with make_world().open() as world:
        await world.app.queues.pause("screenshots")  # no worker takes it, so none can be said to process it
        job_id = await world.shot()
        refused = await world.retry(job_id)
        assert (refused.status_code, refused.json()["error"]) == (400, "VALIDATION_ERROR")
        assert refused.json()["message"] == MUST
        assert await world.balance() == (99, 1, 0)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (1800, ">30 min"),
        (60, ">1 min"),
        (90, "more than 90 seconds"),
        (4, "more than 4 seconds"),
        (1, "more than 1 second"),
    ],
)
async def test_the_limit_of_a_stuck_job_is_told_in_minutes_or_seconds(
    make_world: Callable[..., World], seconds: int, says: str
) -> None:  # S2
    async with make_world(stuck_after_sec=seconds).open(works=False) as world:
        refused = await world.retry(await world.shot())
        assert refused.json()["message"] == f"Job must be in FAILED status or stuck ({says} processing)"


async def test_a_job_that_changes_after_it_was_read_is_a_concurrent_modification(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:  # S2 E33
    async with make_world().open(works=False) as world:
        job_id = await world.shot(url=HANGING)
        retry = world.app.jobs.retry

        async def claimed_first(*given: Any, **more: Any) -> int:
            await stack.enter_async_context(world.working())
            await world.running(job_id)
            return await retry(*given, **more)

        async with contextlib.AsyncExitStack() as stack:
            monkeypatch.setattr(world.app.jobs, "retry", claimed_first)
            refused = await world.retry(job_id)
            assert (refused.status_code, refused.json()["error"]) == (409, "CONCURRENT_MODIFICATION")
            assert refused.json()["message"] == "Job is currently being processed by another worker"
            assert await world.balance() == (99, 1, 0)


async def test_a_screenshot_has_the_fields_of_the_document_from_its_first_moment(
    make_world: Callable[..., World],
) -> None:  # S1 E3a E8
    names = (
        "retryCount",
        "nextRetryAt",
        "lastFailureReason",
        "isRetryable",
        "retryType",
        "lockedBy",
        "lockedAt",
    )
    async with make_world().open(works=False) as world:
        asked = await world.ask("ann", "POST", SHOTS, {"url": HANGING})
        new = (0, None, None, True, "AUTOMATIC", None, None)
        assert tuple(asked.json()[name] for name in names) == new
        job_id = asked.json()["jobId"]
        async with world.working():
            shown = await world.running(job_id)
            [worker] = await world.app.queues.workers()
            assert (shown["lockedBy"], shown["lockedAt"]) == (worker.name, shown["startedAt"])
            assert (shown["isRetryable"], shown["retryType"]) == (True, "AUTOMATIC")
            world.browser.free.set()  # type: ignore[attr-defined]
            shown = await world.ended(job_id)
            assert (shown["lockedBy"], shown["lockedAt"], shown["isRetryable"]) == (None, None, True)


async def test_who_has_too_few_credits_is_told_how_many_are_needed_and_there(world: World) -> None:  # S2 S3
    job_id = await failed(world)
    await Credits.of(world.app).adjust("user:7", -100, reason="spent elsewhere")
    refused = await world.retry(job_id)
    assert refused.status_code == 402
    told = refused.json()
    assert (told["error"], told["requiredCredits"], told["availableCredits"]) == (
        "INSUFFICIENT_CREDITS",
        1,
        0,
    )
    assert (await world.look(job_id))["status"] == "FAILED"
    refused = await world.ask("ann", "POST", SHOTS, {"url": FAILING, "format": "pdf"})
    assert (refused.status_code, refused.json()["requiredCredits"]) == (402, 2)


async def test_the_job_of_somebody_else_is_forbidden_and_one_that_is_not_there_is_not_found(
    world: World,
) -> None:  # S2 E66
    job_id = await failed(world)
    for who, status in (("bob", 403), ("viewer", 403), ("nobody", 401)):
        assert (await world.retry(job_id, who)).status_code == status
    missing = await world.retry("00000000-0000-7000-8000-000000000000")
    assert (missing.status_code, missing.json()["error"]) == (404, "NOT_FOUND")
    assert (await world.retry("../../etc")).status_code == 404
    assert (await world.retry(job_id, "operator")).status_code == 200
    assert (await world.ended(job_id))["manualRetryCount"] == 1


#: The rows of the source document: what happens, what it is called here, whether it is retried.
CLASSIFICATION = {
    "SocketTimeoutException": ("code-NAVIGATION_TIMEOUT", "NAVIGATION_TIMEOUT", True),
    "ConnectException": ("code-CONNECTION_FAILED", "CONNECTION_FAILED", True),
    "IOException": ("picture", "IO_ERROR", True),  # that cannot be written
    "IllegalArgumentException": ("code-SELECTOR_NOT_FOUND", "SELECTOR_NOT_FOUND", False),
    "SecurityException": ("code-TARGET_NOT_ALLOWED", "TARGET_NOT_ALLOWED", False),
    "IllegalStateException": ("code-NOT_A_PAGE", "NOT_A_PAGE", False),
}


async def test_errors_are_retried_or_not_as_the_table_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # S2 E10
    def broken(part: Part) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Part, "publish", broken)
    rows = CLASSIFICATION.values()
    jobs = [await world.shot(url=f"https://example.com/{what}/a") for what, _, _ in rows]
    ended = [await world.ended(job_id) for job_id in jobs]
    assert [(one["errorCode"], one["retryCount"], one["isRetryable"]) for one in ended] == [
        (code, 2 if again else 0, again) for _, code, again in rows
    ]
    assert ended[3]["lastFailureReason"] == "Nothing visible on the page matches the selector."
    assert await world.balance() == (100, 0, 0)


async def test_a_retry_says_nothing_of_the_failure_before_it(tmp_path: Path, database_url: str) -> None:  # S2
    """Neither while it is queued, nor while the new attempt runs; a new failure is shown again."""
    policies = '[tasks.SCREENSHOT]\nmax_attempts = 2\nbackoff = { table = ["1h"], jitter = "none" }\n'
    easel = Easel()
    easel.after = "SELECTOR_NOT_FOUND"
    easel.free.set()
    async with World(tmp_path, database_url, easel, policies=policies).open() as world:
        job_id = await world.shot(url=HANGING)
        assert (await world.ended(job_id))["lastFailureReason"] is not None
        easel.free.clear()
        easel.after = "CONNECTION_FAILED"
        await world.app.queues.pause("screenshots")
        assert (await world.retry(job_id)).status_code == 200
        queued = await world.look(job_id)
        assert (queued["status"], queued["lastFailureReason"], queued["errorCode"]) == ("QUEUED", None, None)
        await world.app.queues.resume("screenshots")
        running = await world.running(job_id)
        assert (running["retryCount"], running["lastFailureReason"]) == (0, None)
        easel.free.set()
        waiting = await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        assert waiting["lastFailureReason"] == message(Code.CONNECTION_FAILED, final=False)


# -- prevention of races ----------------------------------------------------------------------------------------------
async def test_of_ten_clicks_at_once_one_is_accepted_and_runs_and_is_paid(world: World) -> None:  # S2 S3 E33
    job_id = await failed(world)
    easel = world.browser
    assert isinstance(easel, Easel)
    easel.taken.clear()
    answers = await asyncio.gather(*(world.retry(job_id) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers).count(200) == 1
    await world.ended(job_id)
    assert easel.taken[FAILING] == 3  # the attempts of one life
    assert (await world.kinds(job_id)).count("manual_retry") == 1
    assert await world.balance() == (100, 0, 0)


async def test_a_retry_of_a_waiting_job_costs_nothing_and_leaves_no_second_run(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:  # S2 S3 E33
    caplog.set_level("INFO", "screenshots")
    slow = '[tasks.SCREENSHOT]\nmax_attempts = 3\nbackoff = { fixed = "1h", jitter = "none" }\n'
    async with make_world(policies=slow).open(credits=1) as world:
        url = "https://example.com/fail-1/x"
        job_id = await world.shot(url=url)
        await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        assert await world.balance() == (0, 1, 0)
        assert (await world.retry(job_id)).status_code == 200
        assert (await world.ended(job_id))["status"] == "COMPLETED"
        assert world.browser.taken[url] == 2  # type: ignore[attr-defined]
        assert await world.balance() == (0, 0, 1)
        told = [line for line in caplog.messages if line.startswith("job.retr")]
        assert [line.split()[0] for line in told] == ["job.retried", "job.retry_replaced"]
        assert all(f"job_id={job_id} by=user:7 (key ann)" in line for line in told)


async def test_a_stuck_job_is_retried_by_its_owner_before_the_sweep_comes(
    make_world: Callable[..., World],
) -> None:  # S2 E30 E33
    async with make_world(stuck_after_sec=1).open() as world:
        await world.app.queues.pause("stuck", kind="maintenance")
        job_id = await world.shot(url=HANGING)
        await eventually(world.stuck)
        retried = await world.retry(job_id)
        assert retried.status_code == 200
        world.browser.free.set()  # type: ignore[attr-defined]
        shown = await world.ended(job_id)
        assert (shown["status"], shown["manualRetryCount"]) == ("COMPLETED", 1)
        kinds = await world.kinds(job_id)
        assert (kinds.count("reclaimed"), kinds.count("complete")) == (1, 1)
        assert await world.balance() == (99, 0, 1)


async def test_of_two_who_find_a_job_stuck_one_is_accepted_and_it_runs_once(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:  # S2 S8 E30 E33
    async with make_world(stuck_after_sec=1).open() as world:
        await world.app.queues.pause("stuck", kind="maintenance")
        job_id = await world.shot(url=HANGING)
        await eventually(world.stuck)
        store = (await world.app.runtime.engine()).store
        look, both = store.stuck, asyncio.Barrier(2)

        async def look_together(*given: Any, **more: Any) -> Any:
            found = await look(*given, **more)
            await both.wait()
            return found

        monkeypatch.setattr(store, "stuck", look_together)
        answers = await asyncio.gather(world.retry(job_id), world.retry(job_id, "operator"))
        monkeypatch.undo()
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        first = "operator" if answers[1].status_code == 200 else "ann"
        trail = (await world.ask("ann", "GET", f"{SHOTS}/{job_id}/audit")).json()["trail"]
        told = [(one["action"], first in one["by"], one["reason"]) for one in trail[1:3]]
        assert told == [("RECOVERED", True, "STUCK"), ("MANUAL_RETRY", True, None)]
        kinds = await world.kinds(job_id)
        assert (kinds.count("reclaimed"), kinds.count("manual_retry")) == (1, 1)
        world.browser.free.set()  # type: ignore[attr-defined]
        assert (await world.ended(job_id))["status"] == "COMPLETED"
        assert await world.balance() == (99, 0, 1)


async def test_a_retry_takes_back_its_own_stuck_job_and_nobody_elses(
    make_world: Callable[..., World],
) -> None:  # S2 E30 E33
    async with make_world(stuck_after_sec=1).open() as world:
        await world.app.queues.pause("stuck", kind="maintenance")
        bobs, anns = await world.shot("bob", f"{HANGING}/bob"), await world.shot(url=f"{HANGING}/ann")

        async def both() -> bool:
            return len(await world.stuck()) == 2

        await eventually(both)
        assert (await world.retry(anns)).status_code == 200
        assert await world.kinds(bobs) == ["queued", "processing"]
        assert [one["id"] for one in await world.stuck()] == [bobs]
        world.browser.free.set()  # type: ignore[attr-defined]


# -- quotas -----------------------------------------------------------------------------------------------------------
async def test_a_user_has_as_many_retries_a_day_as_its_quota_says(
    make_world: Callable[..., World],
) -> None:  # S3 S10 E18
    policies = POLICIES + "[quotas.default]\nmanual_retries_per_day = 1\n"
    async with make_world(policies=policies).open() as world:
        job_id = await failed(world)
        assert (await world.retry(job_id)).status_code == 200
        await world.ended(job_id)
        for who in ("ann", "operator"):
            refused = await world.retry(job_id, who)
            told = refused.json()
            assert (refused.status_code, told["error"], told["quota"], told["limit"]) == (
                429,
                "QUOTA_EXCEEDED",
                "retries_per_day",
                1,
            )
            assert told["resetsAt"].endswith("T00:00:00+00:00")
            assert int(refused.headers["retry-after"]) >= 1
        assert await world.balance() == (100, 0, 0)
        bobs = await failed(world, "bob")
        assert (await world.retry(bobs, "bob")).status_code == 200


async def test_an_organisation_has_as_many_retries_as_its_quota_says_over_all_members(
    make_world: Callable[..., World],
) -> None:  # S3 S10 E18
    policies = POLICIES + '[quotas.team]\nmanual_retries_per_month = 2\n[owners."org:acme"]\nquota = "team"\n'
    async with make_world(policies=policies).open() as world:
        for name in ("org:acme/ann", "org:acme/bob"):
            await Credits.of(world.app).open(name, paid_by="org:acme")
            world.keys[name] = (await world.app.keys.create("owner", owner=name, name=name))[1]
        first, second, third = [
            await failed(world, name) for name in ("org:acme/ann", "org:acme/bob", "org:acme/ann")
        ]
        assert (await world.retry(first, "org:acme/ann")).status_code == 200
        assert (await world.retry(second, "org:acme/bob")).status_code == 200
        refused = await world.retry(third, "org:acme/ann")
        assert (refused.status_code, refused.json()["quota"]) == (429, "retries_per_month")
        assert refused.json()["resetsAt"].endswith("-01T00:00:00+00:00")


async def test_an_organisation_pays_for_its_members_and_reaches_their_screenshots(world: World) -> None:  # S3
    await Credits.of(world.app).open("user:8", paid_by="org:acme")
    job_id = await failed(world, "bob")
    assert (await world.retry(job_id, "ann")).status_code == 403
    assert (await world.retry(job_id, "acme")).status_code == 200
    await world.ended(job_id)
    await world.ended(await world.shot("bob"))
    assert (await world.balance("org:acme"), await world.balance("user:8")) == ((99, 0, 1), (100, 0, 0))
    bobs = f"{SHOTS}?owner=user:8"
    assert len((await world.ask("acme", "GET", bobs)).json()["screenshots"]) == 2
    assert (await world.ask("ann", "GET", bobs)).status_code == 403
    assert (await world.ask("acme", "GET", SHOTS)).json()["screenshots"] == []
    assert (await world.ask("bob", "GET", "/api/v1/credits")).json() == {
        "owner": "user:8",
        "account": "org:acme",
        "availableCredits": 99,
        "reservedCredits": 0,
        "spentCredits": 1,
    }

"""The four cases of the troubleshooting guide: the symptom, what shows its cause, and what helps (S9)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.contrib.credits import Credits
from tests.commands import run_command
from tests.systems.screenshots.api.world import ADMIN, SHOTS, World, eventually

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).parents[4] / "docs" / "how-to" / "troubleshoot-screenshots.md"
SLOW = '[tasks.SCREENSHOT]\nmax_attempts = 3\nbackoff = { fixed = "1h", jitter = "none" }\n'


async def test_case_1_a_retry_loop_ends_by_itself_and_says_why(world: World) -> None:  # S9
    job_id = await world.shot(url="https://example.com/fail/x")
    shown = await world.ended(job_id)
    assert (shown["status"], shown["retryCount"], shown["maxRetries"]) == ("FAILED", 2, 2)
    assert shown["lastFailureReason"] == (
        "The page could not be reached. Trying again did not help; use Retry later."
    )
    reasons = [
        one["reason"] for one in (await world.ask("ann", "GET", f"{SHOTS}/{job_id}/audit")).json()["trail"]
    ]
    assert reasons.count("CONNECTION_FAILED") == 2
    [letter] = await world.app.dead_letters.list()
    assert letter.message == shown["lastFailureReason"]


async def test_case_2_a_job_that_is_scheduled_can_be_retried_at_once(
    make_world: Callable[..., World],
) -> None:  # S9
    async with make_world(policies=SLOW).open() as world:
        job_id = await world.shot(url="https://example.com/fail-1/x")
        await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        assert (await world.retry(job_id)).status_code == 200
        shown = await world.ended(job_id)
        assert (shown["status"], shown["nextRetryAt"]) == ("COMPLETED", None)


async def test_case_3_delayed_jobs_that_do_not_move_are_paused_or_have_no_worker(
    make_world: Callable[..., World],
) -> None:  # S9
    async with make_world().open(works=False) as world:

        async def scheduler() -> dict[str, object]:
            status = (await world.ask("operator", "GET", f"{ADMIN}/retry-scheduler")).json()
            return {"running": status["running"], "paused": [one["paused"] for one in status["types"]]}

        assert await scheduler() == {"running": False, "paused": [False, False, False]}
        async with world.working():
            await world.ask("operator", "POST", f"{ADMIN}/retry-scheduler/pause", {"types": ["DELAYED_JOBS"]})
            assert await scheduler() == {"running": True, "paused": [False, False, True]}
            job_id = await world.shot(url="https://example.com/fail-1/x")
            await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
            resumed = await world.ask("operator", "POST", f"{ADMIN}/retry-scheduler/resume", {})
            assert resumed.json() == {"resumed": ["DELAYED_JOBS"]}
            assert (await world.ended(job_id))["status"] == "COMPLETED"


async def test_case_4_many_at_one_job_get_one_yes_and_clear_noes(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:  # S9 S2
    async with make_world(policies=SLOW).open() as world:
        job_id = await world.shot(url="https://example.com/fail-1/hang")
        await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        await world.app.queues.pause("screenshots")
        retry, all_have_read = world.app.jobs.retry, asyncio.Barrier(20)

        async def together(*given: Any, **more: Any) -> int:
            await all_have_read.wait()
            return await retry(*given, **more)

        monkeypatch.setattr(world.app.jobs, "retry", together)
        answers = await asyncio.gather(*(world.retry(job_id) for _ in range(20)))
        monkeypatch.undo()
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
        assert {answer.json().get("error") for answer in answers} == {None, "CONCURRENT_MODIFICATION"}
        late = await world.retry(job_id)  # reads it after it was queued
        assert (late.status_code, late.json()["error"]) == (400, "VALIDATION_ERROR")
        await world.app.queues.resume("screenshots")
        assert (await world.ended(job_id))["status"] == "COMPLETED"


def test_the_guide_has_each_debug_command_of_the_document_beside_its_own() -> None:  # S9
    rows = dict(re.findall(r"^\| `((?:redis-cli|curl) .*?)` \| `(.*?)`", GUIDE.read_text(), re.MULTILINE))
    assert {
        theirs.split()[-1].rpartition("/api/v1")[2]: ours.split()[-1] for theirs, ours in rows.items()
    } == {
        "WITHSCORES": "WITHSCORES",
        "/admin/jobs/stuck": "$AT/admin/jobs/stuck",
        "/admin/workers/status": "$AT/admin/workers/status",
        "/admin/jobs/process-stuck": "$AT/admin/jobs/process-stuck",
    }
    own = rows["redis-cli ZRANGE screenshot_api:queue:delayed_jobs 0 -1 WITHSCORES"]
    assert GUIDE.read_text().count(own) == 2  # in the table, and in the block that is run by another test


def test_the_guide_says_what_the_check_of_the_ledger_prints(tmp_path: Path, sqlite_url: str) -> None:  # S9 S3
    environment = os.environ | {"HOLDFAST_DATABASE_URL": sqlite_url}
    asyncio.run(Holdfast(sqlite_url, extensions=[Credits()]).migrate())
    done = run_command([sys.executable, "-m", "holdfast", "credits", "check"], cwd=tmp_path, env=environment)
    assert f'run `holdfast credits check`. It says "{done.stdout.strip()}"' in GUIDE.read_text()


async def test_the_commands_of_the_guide_are_answered(make_world: Callable[..., World]) -> None:  # S9 S5
    async with make_world(stuck_after_sec=1).open() as world:
        await world.app.queues.pause("stuck", kind="maintenance")
        job_id = await world.shot(url="https://example.com/hang/x")
        await eventually(world.stuck)
        commands = re.findall(
            r"^ask (?:-X (POST) )?\$AT(/\S+)(?: -d '(.*)')?$|`ask (?:-X (POST) )?\$AT(/\S+)`",
            GUIDE.read_text(),
            re.MULTILINE,
        )
        commands = [(one[0] or one[3], one[1] or one[4], one[2]) for one in commands]
        assert len(commands) == 15
        for method, path, given in commands:
            where, body = path.replace("$ID", job_id), json.loads(given) if given else None
            answer = await world.ask("operator", method or "GET", f"/api/v1{where}", body)
            assert answer.status_code == 200, (where, answer.text)
        world.browser.free.set()  # type: ignore[attr-defined]
        await world.ended(job_id)

"""The configuration of the source document: policies per type, limits per user, windows, intervals (S4, S10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import UsageError
from systems.screenshots.codes import CODES, Code
from systems.screenshots.failures import ShotFailed, rule
from systems.screenshots.settings import HERE, Settings
from systems.screenshots.tasks import build
from tests.systems.screenshots.api.world import PAGE, POLICIES, World

pytestmark = pytest.mark.anyio


def waits(policy: object, number: int) -> list[float]:
    backoff = policy.retry.backoff  # type: ignore[attr-defined]
    return [backoff.delay(nth, 0.5).total_seconds() for nth in range(1, number + 1)]


def test_each_type_has_the_policy_of_the_file_that_comes_with_it(tmp_path: Path) -> None:  # S10
    made = build(Settings(database_url=f"sqlite:///{tmp_path / 'a.db'}"))
    screenshot, pdf = made.screenshot.policy, made.pdf.policy
    assert (screenshot.retry.max_attempts, waits(screenshot, 5)) == (6, [5, 10, 20, 40, 80])
    assert (pdf.retry.max_attempts, waits(pdf, 2)) == (3, [30, 30])
    assert (screenshot.stuck_after, screenshot.stuck_action) == (timedelta(minutes=30), "retry")
    assert (screenshot.extra["price"], pdf.extra["price"]) == (1, 2)


@pytest.mark.parametrize("says", ["", '[queues.screenshots]\npreset = "screenshots"\n'])
def test_a_type_that_nobody_configured_has_the_default_policy_of_the_document(
    tmp_path: Path, says: str
) -> None:  # S10 E11
    (tmp_path / "holdfast.toml").write_text(says)
    made = build(
        Settings(
            database_url=f"sqlite:///{tmp_path / 'a.db'}",
            policies_file=tmp_path / "holdfast.toml",
            sla_file=HERE / "sla.toml",
        )
    )
    for task in (made.screenshot, made.pdf):
        assert (task.policy.retry.max_attempts, waits(task.policy, 3)) == (4, [5, 25, 125])


def test_every_code_is_retried_or_not_and_says_so_in_both_tenses() -> None:  # S1 E10
    for code, known in CODES.items():
        found = rule(ShotFailed(code))
        assert type(found).__name__ == ("Retryable" if known.again else "Fatal")
        assert ("tried again" in known.trying) is known.again
        assert "tried again" not in known.final
    assert {code for code, known in CODES.items() if known.again} == {
        Code.NAVIGATION_TIMEOUT,
        Code.CONNECTION_FAILED,
        Code.BROWSER_CRASHED,
    }


def test_the_intervals_of_the_scheduler_are_settings() -> None:  # S4
    given = {"STUCK_AFTER_SEC": "60", "STUCK_JOBS_EVERY_SEC": "10", "REDIS_URL": " "}
    read = Settings.read(given)
    assert (read.stuck_after_sec, read.stuck_jobs_every_sec, read.failed_jobs_every_sec) == (60, 10, 30)
    assert (
        Settings().stuck_after_sec,
        Settings().stuck_jobs_every_sec,
        Settings().delayed_jobs_every_sec,
    ) == (
        1800,
        300,
        10,
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"WORKER_CONCURRENCY": "0"}, "WORKER_CONCURRENCY is '0'; it is a whole number from 1 to 64"),
        ({"REDIS_URL": "http://x"}, "REDIS_URL does not name a server"),
        ({"STUCK_AFTER_SEC": "soon"}, "STUCK_AFTER_SEC is 'soon'"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(given: dict[str, str], says: str) -> None:  # S4
    with pytest.raises(UsageError, match=says):
        Settings.read(given)


def test_a_file_of_policies_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml does not exist; set POLICIES_FILE"):
        build(Settings(policies_file=tmp_path / "nowhere.toml"))
    assert (HERE / "holdfast.toml").exists()


async def test_retries_wait_for_their_window_and_a_person_does_not(
    make_world: Callable[..., World],
) -> None:  # S10
    closed = datetime.now(UTC) + timedelta(hours=3)
    opens, ends = closed.strftime("%H:00"), (closed + timedelta(hours=1)).strftime("%H:00")
    window = f'windows = {{ allow = [{{ start = "{opens}", end = "{ends}" }}] }}\n'
    policies = POLICIES.replace("[tasks.PDF_GENERATION]", f"{window}[tasks.PDF_GENERATION]")
    async with make_world(policies=policies).open() as world:
        job_id = await world.shot(url="https://example.com/fail-1/x")
        shown = await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        assert datetime.fromisoformat(shown["nextRetryAt"]) > datetime.now(UTC) + timedelta(hours=1)
        assert (await world.retry(job_id)).status_code == 200
        assert (await world.ended(job_id))["status"] == "COMPLETED"


async def test_a_user_has_limits_of_its_own(make_world: Callable[..., World]) -> None:  # S10 E26
    mine = '[owners."user:7"]\nlimits = { rate = "1/h" }\n'
    async with make_world(policies=POLICIES + mine).open() as world:
        first, second = await world.shot(), await world.shot(url=f"{PAGE}/2")
        others = await world.shot("bob")
        await world.ended(first)
        await world.ended(others)
        # A worker may have taken it up to find that it may not run, and gives it back.
        await world.until(second, lambda shown: shown["status"] == "QUEUED")
        assert world.browser.taken[f"{PAGE}/2"] == 0  # type: ignore[attr-defined]
        assert "the rate of owner user:7 is used up" in (await world.app.jobs.explain(second)).sentence


async def test_a_user_has_a_number_of_retries_of_its_own(make_world: Callable[..., World]) -> None:  # S10
    mine = '[owners."user:7"]\nmax_attempts = 2\n'
    async with make_world(policies=POLICIES + mine).open() as world:
        for who, retries in (("ann", 1), ("bob", 2)):
            shown = await world.ended(await world.shot(who, f"https://{who}.example/fail/x"))
            assert (shown["status"], shown["retryCount"], shown["maxRetries"]) == ("FAILED", retries, retries)


async def test_urgent_screenshots_come_first(make_world: Callable[..., World]) -> None:  # S10
    async with make_world(worker_concurrency=1).open(works=False) as world:
        wanted = {}
        for level in ("LOW", "NORMAL", "HIGH"):
            wanted[level] = [await world.shot(url=f"{PAGE}/{level}/{n}", priority=level) for n in range(6)]
        async with world.working(concurrency=1):
            for ids in wanted.values():
                for job_id in ids:
                    await world.ended(job_id)
        taken = list(world.browser.taken)  # type: ignore[attr-defined]
        assert [url.split("/")[4] for url in taken[:6]].count("HIGH") >= 4
        assert taken[0].split("/")[4] == "HIGH"

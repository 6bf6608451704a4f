"""What those who run it see and do: duties, stuck jobs, workers, metrics, analytics (S4, S5, S7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from systems.screenshots.analytics import HOUR, Span, anomalies, by_day
from tests.systems.screenshots.api.world import ADMIN, PAGE, SHOTS, World, eventually

pytestmark = pytest.mark.anyio

HANGING = "https://example.com/hang/x"
ONCE_A_PDF = """
[tasks.SCREENSHOT]
backoff = { fixed = "50ms", jitter = "none" }
[tasks.PDF_GENERATION]
max_attempts = 1
"""


async def get(world: World, path: str) -> Any:
    answer = await world.ask("operator", "GET", f"{ADMIN}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(world: World, path: str, body: Any = None) -> Any:
    answer = await world.ask("operator", "POST", f"{ADMIN}/{path}", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_stuck_jobs_are_listed_and_reclaimed_on_demand(
    make_world: Callable[..., World],
) -> None:  # S4 S5 S8 E30
    async with make_world(stuck_after_sec=1, policies=ONCE_A_PDF).open() as world:
        assert await post(world, "retry-scheduler/pause", {"types": ["STUCK_JOBS"], "duration": "30m"})
        job_id = await world.shot(url=HANGING)
        stuck = await eventually(world.stuck)
        assert (stuck[0]["id"], stuck[0]["task"], stuck[0]["longer_than"]) == (job_id, "SCREENSHOT", "1s")
        assert (await post(world, "jobs/stuck"))["jobs"] == stuck
        last = await world.shot(url=HANGING, format="pdf")
        await world.running(last)
        both = {"longer_than": "0s", "limit": 100}
        assert await post(world, "jobs/process-stuck", both) == {"found": 2, "processed": 2}
        world.browser.free.set()  # type: ignore[attr-defined]
        assert (await world.ended(job_id))["status"] == "COMPLETED"
        assert (await trail(world, job_id))[1] == ("RECOVERED", "STUCK", "key:operator")
        assert (await trail(world, last))[1:] == [("FAILED", "STUCK", "key:operator")]  # it had one attempt


async def trail(world: World, job_id: str) -> list[tuple[str, str, str]]:
    told = (await world.ask("ann", "GET", f"{SHOTS}/{job_id}/audit")).json()["trail"]
    return [(one["action"], one["reason"], one["by"]) for one in told]


async def test_each_type_is_paused_for_a_while_and_resumed(
    make_world: Callable[..., World],
) -> None:  # S4 E27
    async with make_world().open() as world:
        paused = await post(
            world, "retry-scheduler/pause", {"duration": "30m", "types": ["STUCK_JOBS", "FAILED_JOBS"]}
        )
        assert paused == {"paused": ["STUCK_JOBS", "FAILED_JOBS"], "duration": "30m"}
        status = await get(world, "retry-scheduler")
        assert [(one["type"], one["everySeconds"], one["paused"]) for one in status["types"]] == [
            ("STUCK_JOBS", 300, True),
            ("FAILED_JOBS", 30, True),
            ("DELAYED_JOBS", 10, False),
        ]
        assert status["types"][0]["resumesAt"] is not None
        assert [one.get("batch") for one in status["types"]] == [100, None, None]
        assert (status["running"], status["overdue"]) == (True, 0)
        job_id = await world.shot(url="https://example.com/fail-1/x")  # its retry is held …
        await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        fresh = await world.ended(await world.shot(url=PAGE))  # … and what is new is not
        assert fresh["status"] == "COMPLETED"
        assert (await world.look(job_id))["status"] == "QUEUED"
        assert await post(world, "retry-scheduler/resume", {"types": ["FAILED_JOBS"]}) == {
            "resumed": ["FAILED_JOBS"]
        }
        assert (await world.ended(job_id))["status"] == "COMPLETED"


async def test_a_pause_ends_by_itself(make_world: Callable[..., World]) -> None:  # S4 E27
    async with make_world().open() as world:
        await post(world, "retry-scheduler/pause", {"duration": "1s"})
        job_id = await world.shot(url="https://example.com/fail-1/x")
        await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        assert (await world.ended(job_id))["status"] == "COMPLETED"


async def test_the_status_of_the_workers_names_them_and_what_is_paused(world: World) -> None:  # S5
    await post(world, "retry-scheduler/pause", {"types": ["DELAYED_JOBS"]})
    status = await get(world, "workers/status")
    assert (status["count"], status["paused"]) == (1, ["delayed"])


async def test_the_metrics_tell_of_retries_successes_stuck_and_sizes(world: World) -> None:  # S7
    await world.ended(await world.shot(url="https://example.com/fail-1/x"))
    failed = await world.shot(url="https://example.com/bad/x")
    await world.ended(failed)
    await world.retry(failed)
    await world.ended(failed)
    await world.app.queues.pause("screenshots")
    await world.shot()
    told = (await world.ask("operator", "GET", "/metrics")).text
    for line in (
        'retries_scheduled_total{type="automatic"} 1.0',
        'retries_scheduled_total{type="manual"} 1.0',
        'attempts_succeeded_total{attempt="2",task="SCREENSHOT"} 1.0',
        "jobs_nonretryable_total{",
        "stuck_recovered_total",
        'queue_depth{queue="screenshots"} 1.0',
        "jobs_delayed",
    ):
        assert line in told, line


# -- analytics --------------------------------------------------------------------------------------------------------
async def test_analytics_tell_success_by_attempt_trends_and_what_retries_cost(world: World) -> None:  # S7 E76
    await world.ended(await world.shot(url="https://example.com/fail-1/x"))
    await world.ended(await world.shot(url=PAGE))
    again = await world.shot(url="https://example.com/fail-3/y")
    await world.ended(again)
    await world.retry(again)
    await world.ended(again)
    assert await world.books.follow(world.app, world.screenshots.promises) > 0
    assert await world.books.follow(world.app, world.screenshots.promises) == 0  # each once
    told = await get(world, "analytics?hours=2")
    assert [(one["attempt"], one["ended"], one["succeeded"]) for one in told["byAttempt"]] == [
        (1, 4, 2),
        (2, 2, 1),
        (3, 1, 0),
    ]
    assert told["byCode"] == {"CONNECTION_FAILED": 4}
    assert sum(hour["attempts"] for hour in told["hours"]) == 7
    assert sum(hour["manualRetries"] for hour in told["hours"]) == 1
    assert sum(day["retried"] for day in told["days"]) == 3
    assert (told["cost"]["retryCredits"], told["cost"]["compensationCredits"]) == (1, 0)
    assert told["anomalies"] == []


def hour(number: int, attempts: int, retried: int) -> Span:
    return Span(number * HOUR, attempts, attempts - retried, retried, 0, 1.0, 0)


def test_an_hour_stands_out_by_the_stated_rule_and_no_other() -> None:
    usual = [hour(number, 100, 10 + number % 2) for number in range(6)]
    [found] = anomalies([*usual, hour(6, 100, 40)])
    assert (found["retryRatio"], found["usualRatio"]) == (0.4, 0.105)
    assert anomalies([*usual, hour(6, 100, 14)]) == []  # within 0.05 of what is usual
    assert anomalies([*usual, hour(6, 19, 19)]) == []  # too few to say
    assert anomalies([*usual[:2], hour(6, 100, 99)]) == []  # too little is known
    assert anomalies([*usual, hour(6, 0, 0), hour(7, 100, 40)]) != []  # an empty hour says nothing
    noisy = [hour(number, 100, 10 if number % 2 else 60) for number in range(6)]
    assert anomalies([*noisy, hour(6, 100, 90)]) == []


def test_hours_make_days() -> None:
    [first, second] = by_day([hour(23, 10, 1), hour(24, 20, 2), hour(25, 30, 3)])
    assert (first.attempts, second.attempts, second.retried) == (10, 50, 5)

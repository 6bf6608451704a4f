"""Queues, lanes, breakers, schedules, owners, workers and the admin's words, through the API."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

import pytest

from holdfast import Every
from holdfast.engine.access import Role
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.jobs.job import Lane
from holdfast.testing import ManualClock
from tests.server.test_jobs import call
from tests.server.world import House, new_app, new_house

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def timed() -> tuple[House, ManualClock]:
    clock = ManualClock()
    return new_house(new_app(clock=clock), clock=clock), clock


async def test_queues_are_paused_and_resumed(timed: tuple[House, ManualClock]) -> None:  # E27, E66
    house, clock = timed
    await house.enqueue()
    paused = await call("pause_queue", {"duration": "5m", "reason": "moving"}, name="press", house=house)
    assert paused.json() == {"kind": "queue", "name": "press", "paused": True}
    [queue] = [
        one for one in (await call("list_queues", house=house)).json()["queues"] if one["name"] == "press"
    ]
    assert (queue["waiting"], queue["held"]["reason"]) == (1, "moving")
    [hold] = (await call("list_holds", house=house)).json()["holds"]
    assert hold["by"].startswith("key:admin")
    assert (await call("list_lanes", house=house)).json()["lanes"][0]["held"] is not None
    clock.advance("5m")
    assert (await call("list_holds", house=house)).json() == {"holds": []}
    assert (await call("resume_queue", name="press", house=house)).json()["resumed"] is False
    lane = {"kind": "lane", "name": "press/convert@gateway"}
    assert (await call("pause_scope", lane, house=house)).status_code == 200
    assert (await call("resume_scope", lane, house=house)).json()["resumed"] is True
    for name in ("pause_queue", "resume_queue"):
        unknown = await call(name, name="pres", house=house)
        assert unknown.status_code == 404
        assert "did you mean press?" in unknown.json()["detail"]


async def test_breakers_are_opened_tried_and_closed_by_hand(
    timed: tuple[House, ManualClock],
) -> None:  # E20, E66
    house, clock = timed
    await house.enqueue()
    assert (await call("get_breaker", name="gateway", house=house)).status_code == 404
    opened = await call(
        "open_breaker", {"duration": "10m", "reason": "they said"}, name="gateway", house=house
    )
    assert (opened.json()["state"], opened.json()["version"]) == ("open", 1)
    assert (await call("open_breaker", name="gateway", house=house)).status_code == 409
    seen = await call("get_breaker", name="gateway", house=house)
    assert seen.headers["etag"] == opened.headers["etag"]
    later = (clock.now() + timedelta(minutes=10)).isoformat().replace("+00:00", "Z")
    assert seen.json()["next_trial_at"] == later
    old = {"If-Match": '"0"'}
    assert (await call("try_breaker", name="gateway", headers=old, house=house)).status_code == 412
    tried = await call("try_breaker", {"reason": "now"}, name="gateway", house=house)
    assert tried.json()["next_trial_at"] == tried.json()["since"] != later
    closed = await call(
        "close_breaker", name="gateway", headers={"If-Match": tried.headers["etag"]}, house=house
    )
    assert closed.json()["state"] == "closed"
    assert (await call("close_breaker", name="gateway", house=house)).status_code == 409
    assert (await call("open_breaker", name="gatewy", house=house)).status_code == 404
    [shown] = (await call("list_breakers", house=house)).json()["breakers"]
    assert (shown["dependency"], shown["state"]) == ("gateway", "closed")
    events = [event for event in await house.app.events.list() if event.kind.startswith("breaker")]
    assert [event.meta.get("trial", False) for event in events] == [False, True, False]


async def test_schedules_are_shown_and_paused() -> None:  # E39, E66
    app = new_app()
    app.schedule(app.tasks["note"], Every("5m"), args={"text": "tick"})
    house = new_house(app)
    [shown] = (await call("list_schedules", house=house)).json()["schedules"]
    assert (shown["name"], shown["task"], shown["held"]) == ("note", "note", None)
    assert shown["next"] is not None
    assert (await call("pause_schedule", name="nothing", house=house)).status_code == 404


async def test_a_schedule_is_run_once_now() -> None:
    app = new_app()
    app.schedule(app.tasks["note"], Every("5m"), args={"text": "tick"})
    house = new_house(app)
    named = {"Idempotency-Key": "k"}
    ran = await call("run_schedule", name="note", headers=named, house=house)
    assert (ran.status_code, ran.json()["name"]) == (201, "note")
    assert (await app.jobs.get(ran.json()["id"])).payload == {"text": "tick"}
    again = await call("run_schedule", name="note", headers=named, house=house)
    assert again.json() == ran.json()
    assert await app.jobs.count(task="note") == 1
    assert (await call("run_schedule", name="nothing", house=house)).status_code == 404
    assert (
        await call("run_schedule", name="note", role=Role.OWNER, as_owner="a", house=house)
    ).status_code == 403


async def test_a_schedule_that_no_code_declares_is_forgotten() -> None:  # E39, E66
    house = new_house()
    store = (await house.app.runtime.engine()).store
    now = await store.now()
    await schedule_ticks.move(store, "old", before=None, last=now, due=now + timedelta(minutes=5))
    assert len((await call("list_schedules", house=house)).json()["schedules"]) == 1
    told = await call("forget_schedule", name="old", house=house)
    assert (told.status_code, told.json()) == (200, {"name": "old", "forgotten": True})
    assert (await call("list_schedules", house=house)).json() == {"schedules": []}
    assert (await call("forget_schedule", name="old", house=house)).status_code == 404


async def test_an_owner_sees_what_it_may_use_and_has_used(tmp_path: Path) -> None:  # E18, E66
    file = tmp_path / "holdfast.toml"
    file.write_text(
        '[quotas.small]\nper_day = 5\ncost_per_month = 2.5\n[owners."acme/ann"]\nquota = "small"\nweight = 3\n'
    )
    house = new_house(new_app(policies=file))
    [shown] = (await call("list_owners", house=house)).json()["owners"]
    assert shown == (await call("get_owner", owner="acme/ann", house=house)).json()
    assert (shown["owner"], shown["weight"]) == ("acme/ann", 3)
    assert shown["jobs"]["day"] == {"used": 0, "limit": 5}
    assert shown["cost"]["month"] == {"used": 0, "limit": 2.5}
    [row] = await house.app.queues.owners()
    assert row == await house.app.queues.owner("acme/ann")
    assert (row.jobs.day.limit, row.cost.month.limit) == (5, 2.5)


async def test_a_manual_retry_beyond_the_quota_is_refused_until_the_next_period(
    tmp_path: Path,
) -> None:  # E18, E66
    file = tmp_path / "holdfast.toml"
    file.write_text("[quotas.default]\nmanual_retries_per_day = 2\n")
    house = new_house(new_app(policies=file))
    first, second, third = [await house.dead("alice") for _ in range(3)]
    ask = partial(call, role=Role.OWNER, as_owner="alice", house=house)
    assert (await ask("retry_job", job_id=first)).status_code == 200
    assert (await ask("redrive_dead_letter", job_id=second)).status_code == 200
    for operation in ("retry_job", "redrive_dead_letter"):
        refused = await ask(operation, job_id=third)
        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (429, "QUOTA_EXCEEDED")
        assert (problem["quota"], problem["limit"]) == ("manual_retries_per_day", 2)
        resets_at = datetime.fromisoformat(problem["resets_at"])
        assert parsedate_to_datetime(refused.headers["retry-after"]) == resets_at
        assert resets_at.time() == time()
    shown = (await ask("get_owner", owner="alice")).json()["manual_retries"]
    assert shown == {"day": {"used": 2, "limit": 2}, "month": {"used": 0, "limit": None}}


async def test_stuck_jobs_are_listed_and_reclaimed(timed: tuple[House, ManualClock]) -> None:  # S5
    house, clock = timed
    store = (await house.app.runtime.engine()).store
    session = await store.open_session("slow-worker", timedelta(days=1))
    job_id = await house.enqueue("stuck-one")
    lane = Lane("press", "convert", "gateway", fair=True)
    while job_id not in {one.lease.job_id for one in await store.claim(session, [lane], 1)}:
        continue
    assert (await call("list_stuck_jobs", house=house)).json() == {"jobs": []}
    clock.advance("31m")
    [stuck] = [
        one for one in (await call("list_stuck_jobs", house=house)).json()["jobs"] if one["id"] == job_id
    ]
    assert (stuck["worker"], stuck["longer_than"]) == ("slow-worker", "30m")
    searched = await call("search_stuck_jobs", {"longer_than": "1h"}, house=house)
    assert searched.json() == {"jobs": []}
    assert (await call("search_stuck_jobs", {"tasks": ["nothing"]}, house=house)).status_code == 422
    status = (await call("get_workers_status", house=house)).json()
    assert (status["count"], status["busy"]) == (1, 1)
    assert (await call("list_workers", house=house)).json()["workers"][0]["name"] == "slow-worker"
    for chosen in ({"owner": "nobody"}, {"ids": ["another"]}, {"owner": "acme/ann", "ids": ["another"]}):
        assert (await call("search_stuck_jobs", chosen, house=house)).json() == {"jobs": []}
    mine = await call("search_stuck_jobs", {"ids": [job_id], "tasks": ["convert"]}, house=house)
    assert mine.json() == {"jobs": [stuck]}
    done = (await call("process_stuck_jobs", {"tasks": ["convert"]}, house=house)).json()
    assert done["found"] == done["processed"] >= 1
    assert (await house.app.jobs.get(job_id)).leased_by is None


async def test_what_moves_jobs_by_itself_is_paused_by_type_and_for_a_time(
    timed: tuple[House, ManualClock],
) -> None:  # S4
    house, clock = timed
    paused = await call(
        "pause_retry_scheduler", {"duration": "10m", "types": ["FAILED_JOBS", "STUCK_JOBS"]}, house=house
    )
    assert paused.json() == {"paused": ["FAILED_JOBS", "STUCK_JOBS"], "duration": "10m"}
    status = (await call("get_workers_status", house=house)).json()
    assert status["paused"] == ["retries", "stuck"]
    resumed = await call("resume_retry_scheduler", {"types": ["STUCK_JOBS", "DELAYED_JOBS"]}, house=house)
    assert resumed.json() == {"resumed": ["STUCK_JOBS"]}
    clock.advance("10m")
    assert (await call("get_workers_status", house=house)).json()["paused"] == []
    everything = await call("pause_retry_scheduler", house=house)
    assert everything.json()["paused"] == ["STUCK_JOBS", "FAILED_JOBS", "DELAYED_JOBS"]
    assert len((await call("resume_retry_scheduler", house=house)).json()["resumed"]) == 3
    wrong: list[dict[str, object]] = [
        {"types": ["ALL"]},
        {"types": []},
        {"duration": "soon"},
        {"type": "STUCK_JOBS"},
    ]
    for bad in wrong:
        assert (await call("pause_retry_scheduler", bad, house=house)).status_code == 422


async def test_a_forecast_counts_what_will_be_due_and_is_for_all_but_owners() -> None:  # E66 E68
    house = new_house()
    for _ in range(3):
        await house.app.tasks["convert"].options(delay="90s").enqueue("a.pdf")
    found = (await call("get_forecast", query={"within": "10m", "bucket": "5m"}, house=house)).json()
    assert [(one["dependency"], one["retries"], one["delayed"]) for one in found["scheduled"]] == [
        ("gateway", 0, 3)
    ]
    assert (await call("get_forecast", query={"within": "30s"}, house=house)).json()["scheduled"] == []
    assert (found["bucket_seconds"], found["is_capped"]) == (300, False)
    assert (
        await call("get_forecast", query={"within": "30d", "bucket": "1s"}, house=house)
    ).status_code == 422

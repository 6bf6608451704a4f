"""`app.schedule`: what is kept of it, what is refused, and the jobs that its ticks become."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Cron, Every, Holdfast, PayloadError, UsageError
from holdfast.jobs.schedule import Schedule, tick_id
from holdfast.tasks.schedules import jobs_of
from holdfast.tasks.task import Task

START = datetime(2026, 1, 1, tzinfo=UTC)
ANYTHING: Any = "5m"


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("memory://")


def report_task(app: Holdfast) -> Task[[int, str], Any]:
    @app.task(queue="reports")
    async def report(year: int, kind: str = "short") -> None: ...

    return report


def test_a_task_is_scheduled_by_a_decorator_or_by_a_call(app: Holdfast) -> None:  # E39
    @app.schedule(Cron("0 7 * * mon-fri", zone="Europe/Berlin"))
    @app.schedule(Every("1h"), name="hourly", missed="skip", owner="ada", queue="slow")
    @app.task
    async def clean() -> None: ...

    assert isinstance(clean, Task)
    again = app.schedule(clean, Every("1d"), name="daily", missed="all")
    assert again is clean
    assert app.runtime.declared.schedules == {
        "hourly": Schedule(
            name="hourly", task="clean", when=Every("1h"), missed="skip", owner="ada", queue="slow"
        ),
        "clean": Schedule(name="clean", task="clean", when=Cron("0 7 * * mon-fri", zone="Europe/Berlin")),
        "daily": Schedule(name="daily", task="clean", when=Every("1d"), missed="all"),
    }


def test_the_job_of_a_tick_is_the_same_wherever_it_is_made(app: Holdfast) -> None:  # E39
    report = report_task(app)
    app.schedule(report, Every("1h"), name="hourly", args={"year": 2026}, owner="ada")
    ticks = [START, START + timedelta(hours=1)]
    schedule = app.runtime.declared.schedules["hourly"]
    jobs = jobs_of(schedule, report, ticks)
    assert jobs == jobs_of(schedule, report, ticks)
    assert [job.id for job in jobs] == [tick_id("hourly", tick) for tick in ticks]
    assert [job.spec.run_at for job in jobs] == ticks  # not before its tick, by the store's clock
    assert {job.payload for job in jobs} == {'{"year":2026}'}
    assert {job.spec.owner for job in jobs} == {"ada"}
    assert {job.spec.tags for job in jobs} == {("schedule:hourly",)}
    assert {job.spec.lane.queue for job in jobs} == {"reports"}
    app.schedule(report, Every("1h"), name="slowly", args={"year": 2026}, queue="slow")
    [job] = jobs_of(app.runtime.declared.schedules["slowly"], report, [START])
    assert job.spec.lane.queue == "slow"
    assert job.spec.owner is None


def test_a_long_name_is_a_name(app: Holdfast) -> None:
    report = report_task(app)
    app.schedule(report, Every("1h"), name="n" * 500, args={"year": 1})
    [job] = jobs_of(app.runtime.declared.schedules["n" * 500], report, [START])
    assert len(job.spec.tags[0]) == 500


def test_wrong_arguments_are_refused_when_it_is_declared(app: Holdfast) -> None:  # E39
    report = report_task(app)
    for args, error, told in (
        ({}, UsageError, "needs the argument year"),
        ({"year": 1, "extra": 2}, UsageError, "has no argument extra"),
        ({"year": "many"}, PayloadError, "do not fit its signature"),
        ({"year": object()}, PayloadError, "cannot be stored as JSON"),
    ):
        with pytest.raises(error, match=told):
            app.schedule(report, Every("1h"), args=args)
    assert app.runtime.declared.schedules == {}


def test_what_makes_no_sense_is_refused_when_it_is_declared(app: Holdfast) -> None:  # E39
    report = report_task(app)
    given: dict[str, Any] = {"args": {"year": 1}}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"missed": "sometimes"}, "missed is 'sometimes'; it is one of skip, once, all"),
        ({"name": ""}, "name is ''"),
        ({"queue": ""}, "queue is ''"),
        ({"owner": "a\nb"}, "owner is"),
    ]
    for options, told in bad:
        with pytest.raises(UsageError, match=told):
            app.schedule(report, Every("1h"), **given, **options)
    with pytest.raises(UsageError, match=r"write Cron\(…\) or Every\(…\)"):
        app.schedule(report, ANYTHING, **given)
    assert app.runtime.declared.schedules == {}


def test_two_schedules_have_two_names(app: Holdfast) -> None:  # E39
    report = report_task(app)
    app.schedule(report, Every("1h"), args={"year": 1})
    with pytest.raises(UsageError, match="there is a schedule named 'report' already"):
        app.schedule(report, Every("2h"), args={"year": 1})


def test_only_a_task_of_this_app_is_scheduled(app: Holdfast) -> None:  # E39
    other = report_task(Holdfast("memory://"))
    with pytest.raises(UsageError, match="not a task of this app"):
        app.schedule(other, Every("1h"), args={"year": 1})

    async def plain() -> None: ...

    decorate: Any = app.schedule(Every("1h"))
    with pytest.raises(UsageError, match=r"put @app.schedule above @app.task"):
        decorate(plain)

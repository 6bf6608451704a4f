"""`doctor` finds what is wrong, `bench` leaves nothing behind."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.cli.doctor import (
    invariant_findings,
    lane_findings,
    store_findings,
    stuck_findings,
    waiting_findings,
)
from holdfast.jobs.job import Expired, JobId, Lane, Lease, StuckJob, WorkerRow

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    structlog.reset_defaults()


def examine(capsys: Capture, *options: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def problems(report: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in report["findings"] if finding["level"] == "problem"]


def test_a_healthy_database_has_no_problems(capsys: Capture) -> None:
    main(["migrate", "--url", "sqlite:///well.db"])
    capsys.readouterr()
    code, report = examine(capsys, "--url", "sqlite:///well.db")
    assert (code, report["ok"], problems(report)) == (0, True, [])
    assert report["store"]["store"] == "sqlite"
    assert report["counts"]["queued"] == 0
    assert main(["doctor", "--url", "sqlite:///well.db"]) == 0
    assert "every job's parts agree" in capsys.readouterr().out


def test_workers_whose_handlers_all_wait_for_queued_jobs_are_named() -> None:
    def worker(name: str, waiting: int) -> WorkerRow:
        now = datetime(2026, 3, 1, tzinfo=UTC)
        return WorkerRow(
            name=name, started_at=now, expires_at=now, queues=None, leases=waiting, waiting=waiting
        )

    free, full = worker("free", 0), worker("full", 10)
    [alone], [beside] = waiting_findings([full]), waiting_findings([free, full])
    assert waiting_findings([free]) == []
    assert (alone.level, beside.level) == ("problem", "warning")
    for finding in (alone, beside):
        assert finding.text.startswith("all slots of worker full (10) are held by handlers that wait")
        assert "raise --concurrency" in finding.text


def test_jobs_of_a_task_the_app_does_not_have_are_found_and_counted(folder: Path, capsys: Capture) -> None:
    async def fill() -> None:
        app = Holdfast("sqlite:///strange.db")
        async with app:
            await app.task(name="gone")(_nothing).enqueue_many([{}] * 3)

    asyncio.run(fill())
    (folder / "strange_app.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast('sqlite:///strange.db')\n@app.task\ndef here() -> None: ...\n"
    )
    code, report = examine(capsys, "--app", "strange_app:app")
    assert code == 1
    assert len(problems(report)) == 1
    assert "3 jobs wait in queue 'default' for task 'gone'" in problems(report)[0]
    assert examine(capsys, "--url", "sqlite:///strange.db")[0] == 0  # without an app nothing can be unknown


async def _nothing() -> None: ...


def test_a_lease_that_ran_out_is_found(capsys: Capture) -> None:
    async def lose_a_worker() -> None:
        app = Holdfast("sqlite:///stuck.db")
        task = app.task(name="work")(_nothing)
        async with app:
            await task.enqueue()
            store = (await app.runtime.engine()).store
            session = await store.open_session("w1", timedelta(seconds=30))
            assert len(await store.claim(session, [task.lane], 1)) == 1
            await store.close_session(session)

    asyncio.run(lose_a_worker())
    code, report = examine(capsys, "--url", "sqlite:///stuck.db")
    assert code == 1
    assert "1 jobs whose worker was lost" in problems(report)[0]


def test_attempts_that_run_for_too_long_are_counted() -> None:  # E30
    lost = Expired(Lease(JobId("j1"), 1), Lane("q", "t"), 1, 3, 0, 3, "w1", overran=False)
    [found] = stuck_findings([StuckJob(lost, timedelta(minutes=30))] * 2)
    assert (found.level, found.check) == ("warning", "stuck")
    assert found.text.startswith("2 attempts run longer than their task's stuck_after (j1, j1…)")
    assert stuck_findings([]) == []


def test_an_old_sqlite_is_a_warning_and_a_new_one_is_not() -> None:
    old = store_findings({"store": "sqlite", "version": "3.51.2"})
    assert [f.level for f in old] == ["ok", "warning"]
    assert "3.51.3" in old[1].text
    assert [f.level for f in store_findings({"store": "sqlite", "version": "3.51.3"})] == ["ok"]
    assert [f.level for f in store_findings({"store": "postgres", "version": "16.1"})] == ["ok"]


async def test_a_worker_on_an_old_sqlite_leaves_that_to_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version", "3.51.2")
    caplog.set_level("INFO")
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.task(_nothing)
        await app.run_worker(until_idle=True)
    assert "worker.started" in caplog.text
    assert "older than" not in caplog.text


def test_damage_lost_durability_and_broken_invariants_are_problems() -> None:
    sick = store_findings({"store": "sqlite", "version": "3.60.0", "integrity": "page 3", "durable": False})
    assert [f.level for f in sick] == ["ok", "problem", "problem"]
    assert [f.level for f in invariant_findings(["job x: is wrong"])] == ["problem"]


def test_a_transaction_that_stays_open_is_a_warning() -> None:
    assert [f.level for f in store_findings({"store": "postgresql", "oldest_transaction_s": 301.0})] == [
        "ok",
        "warning",
    ]


def test_an_unknown_task_without_waiting_jobs_is_no_problem() -> None:
    assert [f.level for f in lane_findings({Lane("q", "gone"): 0, Lane("q", "here"): 2}, {"here"})] == ["ok"]


# -- bench ------------------------------------------------------------------------------------------------------------
def test_bench_measures_three_steps_and_leaves_no_file(folder: Path, capsys: Capture) -> None:
    assert main(["bench", "--jobs", "20", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [step["jobs"] for step in report["steps"]] == [10, 20, 30]
    assert all(step["per_second"] > 0 for step in report["steps"])
    assert list(folder.iterdir()) == []


def test_bench_on_a_database_removes_its_jobs_and_touches_no_others(capsys: Capture) -> None:
    async def fill() -> None:
        app = Holdfast("sqlite:///mine.db")
        async with app:
            await app.task(name="mine")(_nothing).enqueue_many([{}] * 3)

    asyncio.run(fill())
    assert main(["bench", "--jobs", "20", "--url", "sqlite:///mine.db"]) == 0
    assert "enqueue, one by one" in capsys.readouterr().out
    main(["jobs", "list", "--url", "sqlite:///mine.db", "--json"])
    left = json.loads(capsys.readouterr().out)["jobs"]
    assert [(row["task"], row["state"]) for row in left] == [("mine", "queued")] * 3


def test_the_demo_shows_a_retry_and_a_dead_letter(capsys: pytest.CaptureFixture[str]) -> None:  # E67
    assert main(["demo", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    ends = {when: [(row["state"], row["attempt"]) for row in shown[when]] for when in ("before", "after")}
    assert ends["before"] == [("complete", 1), ("complete", 3), ("failed", 1)]
    assert ends["after"] == [("complete", 1), ("complete", 3), ("complete", 1)]

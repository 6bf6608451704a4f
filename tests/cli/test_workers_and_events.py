"""`workers`, `events --follow`, and the options that choose jobs and dead letters."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast import Holdfast, Retry
from holdfast.cli import main
from holdfast.cli.doctor import worker_findings
from holdfast.jobs.job import Lane, WorkerRow
from holdfast.stores.sqlite.queries import Queries
from holdfast.testing import ManualClock

Capture = pytest.CaptureFixture[str]
URL = "sqlite:///shop.db"
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    structlog.reset_defaults()


def fill(*orders: int, queue: str = "default") -> list[str]:
    async def enqueue() -> list[str]:
        app = Holdfast(URL)
        async with app:
            handles = await app.task(name="ship")(_ship).options(queue=queue).enqueue_many(orders)
            return [handle.id for handle in handles]

    return asyncio.run(enqueue())


async def _ship(order: int) -> int:
    if order < 0:
        raise ValueError("no such order")
    return order


def said(capsys: Capture, *args: str) -> Any:
    assert main([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# -- workers ----------------------------------------------------------------------------------------------------------
def hire(*queues: str) -> None:
    async def open_session() -> None:
        app = Holdfast(URL)
        async with app:
            store = (await app.runtime.engine()).store
            session = await store.open_session("host-1", MINUTE, queues or None)
            await store.claim(session, [Lane("default", "ship")], 1)

    asyncio.run(open_session())


def test_workers_are_listed_for_programs_and_people(capsys: Capture) -> None:  # E49 E67
    fill(1, 2)
    hire("default", "slow")
    [worker] = said(capsys, "workers", "--url", URL)["workers"]
    assert (worker["name"], worker["queues"], worker["leases"]) == ("host-1", ["default", "slow"], 1)
    assert worker["started_at"] < worker["expires_at"]
    assert main(["workers", "--url", URL]) == 0
    shown = capsys.readouterr().out
    assert "host-1" in shown
    assert "default, slow" in shown


def test_no_worker_is_said_in_words(capsys: Capture) -> None:  # E67
    fill(1)
    assert main(["workers", "--url", URL]) == 0
    assert capsys.readouterr().out == "No worker is running.\n"


def test_doctor_names_queues_that_nobody_serves(capsys: Capture) -> None:  # E67
    fill(1, 2)
    fill(3, queue="mail")
    hire("default")
    report = said(capsys, "doctor", "--url", URL)
    [warning] = [f["text"] for f in report["findings"] if f["check"] == "workers"]
    assert warning.startswith("1 jobs wait in queue 'mail' and no live worker serves it")
    hire()  # one that serves whatever its tasks are in
    report = said(capsys, "doctor", "--url", URL)
    assert [f["level"] for f in report["findings"] if f["check"] == "workers"] == ["ok"]
    assert report["store"]["schema"].startswith("core ")


def test_a_queue_without_jobs_needs_no_worker() -> None:
    now = ManualClock().now()
    worker = WorkerRow(name="w", started_at=now, expires_at=now, queues=("a",), leases=0)
    lanes = {Lane("a", "x"): 2, Lane("b", "x"): 0}
    assert [f.level for f in worker_findings(lanes, [worker])] == ["ok"]
    assert [f.level for f in worker_findings(lanes, [])] == ["warning"]


# -- events -----------------------------------------------------------------------------------------------------------
def follow(monkeypatch: pytest.MonkeyPatch, *options: str) -> threading.Thread:
    """Begin to follow; back when it is known where it begins."""
    begun = threading.Event()
    newest = Queries.newest_event

    async def told(store: Queries) -> int:
        found = await newest(store)
        begun.set()
        return found

    monkeypatch.setattr(Queries, "newest_event", told)
    thread = threading.Thread(target=main, args=(["events", "--follow", "--json", "--url", URL, *options],))
    thread.start()
    assert begun.wait(10) or "--after" in options
    return thread


def events(capsys: Capture) -> list[str]:
    return [json.loads(line)["job_id"] for line in capsys.readouterr().out.splitlines()]


def test_following_begins_now(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:  # E60 E67
    fill(1, 2)
    follower = follow(monkeypatch, "--limit", "1")
    [new] = fill(3)
    follower.join(30)
    assert events(capsys) == [new]


def test_following_one_job_begins_now_too(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:  # E60 E67
    [job, _] = fill(1, 2)
    follower = follow(monkeypatch, "--limit", "1", "--job", job)
    assert main(["jobs", "cancel", job, "--url", URL]) == 0
    follower.join(30)
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[-1])["kind"] == "cancelled"


def test_following_from_the_beginning_reads_all(capsys: Capture) -> None:  # E60 E67
    old = fill(1, 2)
    assert main(["events", "--follow", "--after", "0", "--limit", "2", "--json", "--url", URL]) == 0
    assert events(capsys) == old
    assert main(["events", "--json", "--url", URL]) == 0
    assert events(capsys) == old


# -- filters ----------------------------------------------------------------------------------------------------------
def bury(*orders: int, queue: str, owner: str) -> None:
    async def run() -> None:
        app = Holdfast(URL)
        async with app:
            task = app.task(name="ship", retry=Retry(1))(_ship)
            await task.options(queue=queue, owner=owner).enqueue_many(orders)
            await app.run_worker(until_idle=True)

    asyncio.run(run())


def test_jobs_and_dead_letters_are_chosen_by_the_same_options(capsys: Capture) -> None:  # E32 E67
    bury(-1, -2, queue="a", owner="ann")
    bury(-3, 4, queue="b", owner="bob")

    def count(*args: str) -> int:
        found = said(capsys, *args, "--url", URL)
        return len(found["jobs"] if "jobs" in found else found["dead_letters"])

    for what, there_are in (("jobs", 4), ("dead", 3)):
        assert count(what, "list", "--queue", "a") == 2
        assert count(what, "list", "--owner", "ann") == 2
        assert count(what, "list", "--task", "ship,other", "--queue", "a", "--queue", "b") == there_are
        assert count(what, "list", "--task", "other") == 0
    assert count("jobs", "list", "--queue", "a,b", "--state", "failed") == 3
    assert (
        count("dead", "list", "--code", "UNKNOWN", "--queue", "b") + count("dead", "list", "--code", "X") == 1
    )
    [group] = said(capsys, "dead", "groups", "--queue", "b", "--url", URL)["groups"]
    assert count("dead", "list", "--fingerprint", group["fingerprint"]) == 3
    assert said(capsys, "dead", "redrive", "--owner", "ann", "--url", URL)["redriven"] == 2
    discarded = said(capsys, "dead", "discard", "--reason", "known", "--queue", "b", "--url", URL)
    assert discarded["discarded"] == 1


def test_the_help_of_a_command_lists_its_filters(capsys: Capture) -> None:  # E67
    assert main(["dead", "redrive", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--task", "--queue", "--code", "--fingerprint", "--owner", "--all", "--dry-run"):
        assert option in shown
    assert "--where" not in shown


@pytest.mark.parametrize(
    "command",
    [
        "jobs cancel",
        "outbox park",
        "outbox discard",
        "dead discard",
        "queues pause",
        "schedules pause",
        "breakers open",
        "breakers close",
    ],
)
def test_what_a_person_does_takes_a_reason(capsys: Capture, command: str) -> None:  # E67
    assert main([*command.split(), "--help"]) == 0
    assert "--reason" in capsys.readouterr().out

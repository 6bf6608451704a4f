"""Looking at jobs, dead letters and events from the command line, and moving them, on a real SQLite file."""

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from holdfast import THIS_JOB, Fatal, Holdfast, Job
from holdfast.cli import main
from holdfast.cli.jobs import jobs
from holdfast.cli.tables import clean
from holdfast.cli.times import ago, span

Capture = pytest.CaptureFixture[str]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

COLUMNS = """id task queue owner priority state generation epoch attempt max_attempts crashes run_at created_at
    queued_at started_at finished_at failed_at last_attempt_at updated_at deadline_at expired_at leased_by
    lease_expires_at error_code error_message last_failure retry_type manual_retry_count is_retryable result tags
    payload"""


class Shop:
    """A database with two complete jobs, three dead ones (two causes) and one that waits."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ids: dict[str, list[str]] = {}

    async def fill(self) -> None:
        app = Holdfast(self.url)

        @app.task
        async def hello(name: str) -> str:
            return f"hello {name}"

        @app.task(queue="mail")
        async def send(to: str) -> None:
            raise Fatal(f"no address {to}\x1b[31m", code="NO_ADDRESS")

        @app.task
        async def other() -> None:
            raise Fatal("broken", code="BROKEN")

        async with app:
            self.ids["hello"] = [
                h.id for h in await hello.options(owner="ann", tags=["x"]).enqueue_many(["a", "b"])
            ]
            self.ids["send"] = [h.id for h in await send.enqueue_many(["c", "d"])]
            self.ids["other"] = [(await other.enqueue()).id]
            await app.run_worker(until_idle=True)
            self.ids["waiting"] = [(await hello.options(delay="1h").enqueue("later")).id]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_LOG_LEVEL", raising=False)
    shop = Shop(f"sqlite:///{tmp_path / 'shop.db'}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    asyncio.run(shop.fill())
    yield shop
    structlog.reset_defaults()


def answer(capsys: Capture, shop: Shop, *command: str, code: int = 0) -> Any:
    """What `--json` prints."""
    assert main([*command, "--url", shop.url, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def said(capsys: Capture, shop: Shop, *command: str, code: int = 0) -> str:
    """What people read."""
    assert main([*command, "--url", shop.url]) == code
    out, err = capsys.readouterr()
    return out + err


# -- jobs -------------------------------------------------------------------------------------------------------------
def test_the_list_holds_every_column_of_a_job_with_its_payload(shop: Shop, capsys: Capture) -> None:  # E3a
    page = answer(capsys, shop, "jobs", "list")
    assert page["next"] is None
    assert len(page["jobs"]) == 6
    [row] = [row for row in page["jobs"] if row["id"] == shop.ids["send"][0]]
    columns = COLUMNS.split()
    assert [name for name in columns if name not in row] == []
    assert row["state"] == "failed"
    assert row["payload"] == {"to": "c"}
    assert row["failed_at"] == row["finished_at"]
    assert datetime.fromisoformat(row["created_at"]).utcoffset() == timedelta()
    assert "events" not in row


def test_pages_follow_each_other_without_gaps(shop: Shop, capsys: Capture) -> None:
    seen: list[str] = []
    cursor: list[str] = []
    page: dict[str, Any] = {}
    for _ in range(3):
        page = answer(capsys, shop, "jobs", "list", "--limit", "2", *cursor)
        seen += [row["id"] for row in page["jobs"]]
        cursor = ["--after", page["next"]]
    assert page["next"] is None
    assert sorted(seen) == sorted(job_id for ids in shop.ids.values() for job_id in ids)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--state", "failed"], 3),
        (["--state", "failed,complete"], 5),
        (["--state", "failed", "--state", "queued"], 4),
        (["--task", "hello"], 3),
        (["--queue", "mail"], 2),
        (["--owner", "ann"], 2),
        (["--tag", "x"], 2),
        (["--tag", "y"], 0),
    ],
)
def test_filters_choose(shop: Shop, capsys: Capture, filters: list[str], expected: int) -> None:
    assert len(answer(capsys, shop, "jobs", "list", *filters)["jobs"]) == expected


def test_events_come_with_the_jobs_when_asked_for(shop: Shop, capsys: Capture) -> None:
    page = answer(capsys, shop, "jobs", "list", "--events", "--state", "complete", "--limit", "1")
    assert [event["kind"] for event in page["jobs"][0]["events"]] == ["queued", "processing", "complete"]


def test_an_unknown_state_is_a_usage_error_that_names_those_there_are(shop: Shop, capsys: Capture) -> None:
    text = said(capsys, shop, "jobs", "list", "--state", "done", code=2)
    assert "queued, processing, complete, failed, cancelled" in text


def test_people_see_whole_ids_and_relative_times_and_no_colour_in_a_pipe(shop: Shop, capsys: Capture) -> None:
    text = said(capsys, shop, "jobs", "list")
    assert all(job_id in text for ids in shop.ids.values() for job_id in ids)
    assert "now" in text or " ago" in text
    assert "\x1b" not in text  # neither ours nor one hidden in a job's own words


def test_a_narrow_terminal_still_shows_whole_ids(
    shop: Shop, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = said(capsys, shop, "jobs", "list")
    assert len(UUID.findall(text)) == 6
    assert max(map(len, text.splitlines())) <= 60


def test_show_tells_the_whole_story(shop: Shop, capsys: Capture) -> None:
    [job_id, _] = shop.ids["send"]
    story = answer(capsys, shop, "jobs", "show", job_id)
    assert [event["kind"] for event in story["events"]] == ["queued", "processing", "failed"]
    assert story["attempts"][0]["failure"]["code"] == "NO_ADDRESS"
    assert story["attempts"][0]["duration_ms"] >= 0
    assert story["late_results"] == []
    text = said(capsys, shop, "jobs", "show", job_id)
    assert "Attempts" in text
    assert "NO_ADDRESS" in text


def test_a_job_that_is_not_there_is_not_found(shop: Shop, capsys: Capture) -> None:
    assert "no job has the id nope" in said(capsys, shop, "jobs", "show", "nope", code=4)
    assert "no job has the id nope" in said(capsys, shop, "jobs", "retry", "nope", code=4)


def test_retry_and_cancel_move_a_job_and_refuse_when_it_is_too_late(shop: Shop, capsys: Capture) -> None:
    [job_id] = shop.ids["other"]
    assert "--args is not JSON" in said(capsys, shop, "jobs", "retry", job_id, "--args", "{", code=2)
    assert "--args is an object" in said(capsys, shop, "jobs", "retry", job_id, "--args", "3", code=2)
    assert "is not one of this app" in said(capsys, shop, "jobs", "retry", job_id, "--args", "{}", code=2)
    assert answer(capsys, shop, "jobs", "retry", job_id) == {"id": job_id, "state": "queued", "place": 1}
    assert "is cancelled" in said(capsys, shop, "jobs", "cancel", job_id, "--reason", "a test")
    assert said(capsys, shop, "jobs", "cancel", job_id, code=3).startswith("holdfast: ")
    last = answer(capsys, shop, "jobs", "show", job_id)["events"][-1]
    assert last["kind"] == "cancelled"
    assert last["meta"]["reason"] == "a test"
    assert last["meta"]["by"].startswith("cli")


def test_counts_are_by_state(shop: Shop, capsys: Capture) -> None:
    assert answer(capsys, shop, "jobs", "counts") == {
        "queued": 1,
        "processing": 0,
        "complete": 2,
        "failed": 3,
        "cancelled": 0,
    }
    assert "complete" in said(capsys, shop, "jobs", "counts")


def test_the_group_runs_under_typers_own_runner_too(shop: Shop) -> None:
    result = CliRunner().invoke(jobs, ["counts", "--url", shop.url, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["failed"] == 3


# -- dead letters -----------------------------------------------------------------------------------------------------
def test_dead_letters_are_listed_and_filtered(shop: Shop, capsys: Capture) -> None:
    assert len(answer(capsys, shop, "dead", "list")["dead_letters"]) == 3
    assert len(answer(capsys, shop, "dead", "list", "--code", "BROKEN")["dead_letters"]) == 1
    assert len(answer(capsys, shop, "dead", "list", "--queue", "mail")["dead_letters"]) == 2
    first = answer(capsys, shop, "dead", "list", "--limit", "2")
    second = answer(capsys, shop, "dead", "list", "--limit", "2", "--after", first["next"])
    assert len(first["dead_letters"]) == 2
    assert len(second["dead_letters"]) == 1
    assert second["next"] is None
    assert "\x1b" not in said(capsys, shop, "dead", "list")


def test_groups_count_by_cause(shop: Shop, capsys: Capture) -> None:
    groups = answer(capsys, shop, "dead", "groups")["groups"]
    assert sum(group["count"] for group in groups) == 3
    assert "NO_ADDRESS" in said(capsys, shop, "dead", "groups")


def test_one_dead_letter_is_shown_or_not_found(shop: Shop, capsys: Capture) -> None:
    [job_id] = shop.ids["other"]
    assert answer(capsys, shop, "dead", "show", job_id)["code"] == "BROKEN"
    assert "no dead letter has the id" in said(capsys, shop, "dead", "show", shop.ids["hello"][0], code=4)


def test_a_dry_run_says_how_many_and_changes_nothing(shop: Shop, capsys: Capture) -> None:
    found = answer(capsys, shop, "dead", "redrive", "--task", "send", "--dry-run")
    assert (found["matched"], found["dry_run"], found["skipped"]) == (2, True, {})
    assert "3 would be redriven" in said(capsys, shop, "dead", "redrive", "--all", "--dry-run")
    assert answer(capsys, shop, "jobs", "counts")["failed"] == 3


def test_redrive_needs_to_know_which(shop: Shop, capsys: Capture) -> None:
    assert "--all" in said(capsys, shop, "dead", "redrive", code=2)
    assert "--all" in said(capsys, shop, "dead", "discard", "--reason", "x", code=2)
    assert answer(capsys, shop, "jobs", "counts")["failed"] == 3


def test_redrive_obeys_limit_and_queue(shop: Shop, capsys: Capture) -> None:
    done = answer(capsys, shop, "dead", "redrive", "--task", "send", "--limit", "1", "--to-queue", "slow")
    assert done["redriven"] == 1
    [row] = answer(capsys, shop, "jobs", "list", "--queue", "slow")["jobs"]
    assert row["state"] == "queued"
    assert row["generation"] == 2


def test_redrive_by_id_and_discard_leave_no_dead_letters(shop: Shop, capsys: Capture) -> None:
    assert "1 redriven" in said(capsys, shop, "dead", "redrive", shop.ids["other"][0], "--rate", "1000")
    assert "2 discarded" in said(capsys, shop, "dead", "discard", "--all", "--reason", "old")
    assert answer(capsys, shop, "dead", "list")["dead_letters"] == []
    assert "no dead letter has the id" in said(capsys, shop, "dead", "redrive", shop.ids["other"][0], code=4)


def test_discard_must_say_why(shop: Shop, capsys: Capture) -> None:
    assert "--reason" in said(capsys, shop, "dead", "discard", "--all", code=2)


# -- events -----------------------------------------------------------------------------------------------------------
def test_events_are_one_object_a_line_and_go_on_from_a_cursor(shop: Shop, capsys: Capture) -> None:
    assert main(["events", "--url", shop.url, "--json", "--limit", "3"]) == 0
    first = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["events", "--url", shop.url, "--json", "--after", str(first[-1]["id"])]) == 0
    rest = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(first) == 3
    assert len(first) + len(rest) == 16  # 5 jobs × 3, and one that waits
    ids = [event["id"] for event in first + rest]
    assert ids == sorted(set(ids))


def test_events_of_one_job(shop: Shop, capsys: Capture) -> None:
    text = said(capsys, shop, "events", "--job", shop.ids["other"][0])
    assert [line.split()[2] for line in text.splitlines()] == ["queued", "processing", "failed"]
    assert "no job has the id" in said(capsys, shop, "events", "--job", "nope", code=4)


# -- words ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (3.9, "3 s ago"),
        (200, "3 m ago"),
        (7300, "2 h ago"),
        (200_000, "2 d ago"),
        (-80, "in 1 m"),
        (-598, "in 10 m"),
        (-59.99, "in 1 m"),
        (-7170, "in 2 h"),
        (-599.998, "in 10 m"),
    ],
)
def test_times_are_relative(seconds: float, words: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert ago(now - timedelta(seconds=seconds), now) == words


def test_durations_are_short() -> None:
    assert [span(0.00217), span(0.0123), span(0.5), span(42), span(3700)] == [
        "2.17 ms",
        "12.3 ms",
        "0.5 s",
        "42 s",
        "1 h",
    ]


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert clean("a\x1b[2Jb\r\x07") == "a�[2Jb��"


async def test_the_progress_of_a_running_job_is_shown(sqlite_url: str, capsys: Capture) -> None:
    app = Holdfast(sqlite_url, poll="20ms")
    reported, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def convert(*, job: Job = THIS_JOB) -> None:
        await job.progress(40, "2 of 5 pages")
        reported.set()
        await go_on.wait()

    async with app:
        await convert.enqueue()
        working = asyncio.create_task(app.run_worker(until_idle=True))
        await reported.wait()
        assert await asyncio.to_thread(main, ["jobs", "list", "--url", sqlite_url]) == 0
        go_on.set()
        await working
    assert "40 %, 2 of 5 pages, at " in " ".join(capsys.readouterr().out.split())

"""`enqueue`, `tasks`, `settings`, `schedules run`, `breakers try`, `dead export` and work on many jobs, on a real SQLite file."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.jobs.job import JobRow
from holdfast.maintenance.operations import OperationRunner

Capture = pytest.CaptureFixture[str]
URL = "sqlite:///shop.db"

APP = f"""
from holdfast import Every, Fatal, Holdfast

app = Holdfast({URL!r}, lease="2m", broker="amqp://shop:hunter2@rabbit/")

@app.task(queue="mail", retry=3, timeout="10s")
async def send(to: str, copies: int = 1) -> str:
    return f"{{copies}} to {{to}}"

@app.task(depends_on="bank")
async def charge(order: int) -> None:
    raise Fatal("declined", code="DECLINED")

@app.schedule(Every("1h"))
@app.task
async def sweep() -> None: ...
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an app in a module of its own, in the working directory, with an empty database."""
    for name in ("HOLDFAST_DATABASE_URL", "HOLDFAST_LOG_LEVEL", "HOLDFAST_POLICIES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "240")  # so that no cell is folded
    module = f"shop_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(APP)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    assert main(["migrate", "--url", URL]) == 0
    yield f"{module}:app"
    structlog.reset_defaults()


def output(capsys: Capture, *command: str, code: int = 0) -> str:
    """Return what a command prints on both streams."""
    capsys.readouterr()
    assert main(list(command)) == code
    out, err = capsys.readouterr()
    return out + err


def answer(capsys: Capture, *command: str) -> Any:
    """Return what a command prints with `--json`."""
    return json.loads(output(capsys, *command, "--json"))


def with_app(name: str, act: Callable[[Holdfast], Awaitable[Any]]) -> Any:
    from holdfast.cli.apps import load_app

    async def run() -> Any:
        async with load_app(name) as app:
            return await act(app)

    return asyncio.run(run())


def work(name: str) -> None:
    """Run a worker until nothing is left to do."""
    with_app(name, lambda app: app.run_worker(until_idle=True))


def carry_out(name: str) -> None:
    """Do what the operations have begun, and run no jobs."""

    async def run(app: Holdfast) -> None:
        await OperationRunner(await app.runtime.engine()).run()

    with_app(name, run)


def job(name: str, job_id: str) -> JobRow:
    row: JobRow = with_app(name, lambda app: app.jobs.get(job_id))
    return row


def enqueue(capsys: Capture, app: str, *words: str) -> str:
    found: str = answer(capsys, "enqueue", *words, "--app", app)["id"]
    return found


# -- enqueue ----------------------------------------------------------------------------------------------------------
def test_a_job_is_enqueued_with_arguments_by_name(app: str, capsys: Capture) -> None:
    row = job(app, enqueue(capsys, app, "send", "to=123", "copies=4"))
    assert (row.task, row.payload) == ("send", {"to": "123", "copies": 4})  # `to` takes text


def test_a_job_is_enqueued_with_all_arguments_as_json(app: str, capsys: Capture) -> None:
    row = job(app, enqueue(capsys, app, "send", "--args", '{"to": "ann"}'))
    assert row.payload == {"to": "ann"}


def test_enqueue_takes_the_options_of_a_call(app: str, capsys: Capture) -> None:
    own_id = "01a1f267-b8d3-7744-b3c3-ceecba216d24"
    options = (
        "--owner ann --queue slow --priority high --delay 1h --max-attempts 7 --key k --tag a,b --deadline 2h"
    )
    row = job(app, enqueue(capsys, app, "send", "to=x", *options.split(), "--id", own_id))
    assert (row.id, row.owner, row.queue, row.max_attempts) == (own_id, "ann", "slow", 7)
    assert row.tags == ("a", "b")
    assert row.priority == 10
    assert (row.run_at - row.created_at).total_seconds() == pytest.approx(3600, abs=1)
    assert row.deadline_at is not None


def test_enqueue_says_when_its_dedupe_key_is_taken(app: str, capsys: Capture) -> None:
    words = ("enqueue", "send", "to=x", "--dedupe-key", "a", "--app", app)
    first, second = answer(capsys, *words), answer(capsys, *words)
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["id"] == second["id"]
    assert "exists already" in output(capsys, *words)


def test_enqueue_waits_for_the_result(app: str, capsys: Capture) -> None:
    known = enqueue(capsys, app, "send", "to=ann", "--dedupe-key", "a")
    work(app)
    words = ("enqueue", "send", "to=ann", "--app", app, "--wait", "100ms")
    shown = answer(capsys, *words, "--id", known)
    assert shown["result"] == "1 to ann"
    assert "is still queued after 100ms" in output(capsys, *words, code=1)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["snd", "to=x"], "no task 'snd'; did you mean send?"),
        (["send"], "needs the argument to"),
        (["send", "to"], "'to' is not NAME=VALUE, e.g. order=1001"),
        (["send", "to=a", "to=b"], "to is given twice"),
        (["send", "to=a", "--args", "{}"], "not both"),
        (["send", "--args", "[1]"], "--args is an object"),
        (["send", "--args", "{"], "--args is not JSON"),
        (["charge", "order=NaN"], "Expected `int`, got `str`"),
        (["send", "to=a", "--run-at", "soon"], "--run-at is 'soon'; write a time"),
        (["send", "to=a", "--priority", "urgent"], "priority is 'urgent'; it is one of"),
        (["send", "to=a", "--priority", "9" * 5000], "it is one of"),
    ],
)
def test_a_wrong_call_is_explained(app: str, capsys: Capture, words: list[str], error: str) -> None:
    assert error in output(capsys, "enqueue", *words, "--app", app, code=2)


@pytest.mark.parametrize("command", ["jobs list", "jobs cancel --state queued", "dead redrive --task send"])
@pytest.mark.parametrize("option", ["--owner", "--queue"])
def test_an_empty_filter_does_not_select_everything(
    app: str, capsys: Capture, command: str, option: str
) -> None:
    """`jobs cancel --state queued --owner "$OWNER"` must not cancel the jobs of all owners where the variable is unset."""
    known = enqueue(capsys, app, "send", "to=x", "--owner", "ann")
    error = output(capsys, *command.split(), option, "", "--url", URL, code=2)
    assert f"{option} is empty" in error
    assert job(app, known).state == "queued"


def test_enqueue_needs_an_app(app: str, capsys: Capture) -> None:
    assert "name it with --app" in output(capsys, "enqueue", "send", "to=a", "--url", URL, code=2)


# -- tasks and settings -----------------------------------------------------------------------------------------------
def test_tasks_are_listed_with_their_policies(app: str, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[tasks.send]\nmax_attempts = 9\n")
    shown = {task["name"]: task for task in answer(capsys, "tasks", "--app", app)["tasks"]}
    assert list(shown) == ["send", "charge", "sweep"]
    send = shown["send"]
    assert (send["arguments"], send["required"], send["schedules"]) == (["to", "copies"], ["to"], [])
    assert (send["policy"]["queue"], send["policy"]["timeout"]) == ("mail", "10s")
    assert send["policy"]["retry"]["max_attempts"] == 9
    assert send["policy"]["retry"]["delays"][:2] == ["2s500ms to 5s", "5s to 10s"]
    assert send["from_policy_file"] == ["retry"]
    assert shown["sweep"]["schedules"] == ["sweep"]
    assert shown["charge"]["policy"]["depends_on"] == "bank"
    text = output(capsys, "tasks", "--app", app)
    assert "to, copies" in text
    assert "timeout" in output(capsys, "tasks", "send", "--app", app)
    assert "did you mean send" in output(capsys, "tasks", "snd", "--app", app, code=2)


def test_settings_name_their_source_and_hide_secrets(
    app: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_POLL", "2s")
    monkeypatch.setenv("HOLDFAST_LEASE", "9m")  # the code wins
    monkeypatch.setenv("HOLDFAST_SECRET", "correct horse battery staple")
    monkeypatch.setenv("HOLDFAST_LAESE", "1m")
    found = answer(capsys, "settings", "--app", app)
    settings = found["settings"]
    assert settings["database"] == {"value": URL, "source": "code"}
    assert settings["lease"] == {"value": "2m", "source": "code"}
    assert settings["poll"] == {"value": "2s", "source": "HOLDFAST_POLL"}
    assert settings["grace"] == {"value": "30s", "source": "default"}
    assert settings["secret"] == {"value": "(hidden)", "source": "HOLDFAST_SECRET"}
    assert found["unread"] == ["HOLDFAST_LAESE"]
    text = output(capsys, "settings", "--app", app)
    assert "HOLDFAST_LAESE is set, but no setting has this name" in text
    assert "hunter2" not in text
    assert "horse" not in text
    assert "amqp://" in text


def test_settings_without_an_app_are_those_of_the_environment(
    app: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://ann:hunter2@db/shop")
    settings = answer(capsys, "settings")["settings"]
    assert settings["database"]["source"] == "HOLDFAST_DATABASE_URL"
    assert "hunter2" not in settings["database"]["value"]
    assert answer(capsys, "settings", "--url", URL)["settings"]["database"] == {
        "value": URL,
        "source": "--url",
    }


# -- schedules, breakers, dead letters --------------------------------------------------------------------------------
def test_a_schedule_is_run_once_now(app: str, capsys: Capture) -> None:
    ran = answer(capsys, "schedules", "run", "sweep", "--app", app)
    assert (ran["name"], job(app, ran["id"]).task) == ("sweep", "sweep")
    assert "is queued" in output(capsys, "schedules", "run", "sweep", "--app", app)
    assert "did you mean sweep" in output(capsys, "schedules", "run", "swep", "--app", app, code=2)
    assert "name it with --app" in output(capsys, "schedules", "run", "sweep", "--url", URL, code=2)


def test_trials_of_a_dependency_begin_by_hand(app: str, capsys: Capture) -> None:
    assert main(["breakers", "open", "bank", "--for", "1h", "--app", app]) == 0
    tried = answer(capsys, "breakers", "try", "bank", "--reason", "it is back", "--app", app)
    assert (tried["dependency"], tried["state"]) == ("bank", "open")
    [event] = [
        event
        for event in with_app(app, lambda app: app.events.list(limit=100))
        if event.meta.get("trial") is True
    ]
    assert event.meta["reason"] == "it is back"
    assert "no dependency named 'bnk'" in output(capsys, "breakers", "try", "bnk", "--app", app, code=2)


@pytest.fixture
def declined(app: str, capsys: Capture) -> list[str]:
    """Three dead letters of orders 1001 to 1003."""
    ids = [enqueue(capsys, app, "charge", f"order={number}") for number in (1001, 1002, 1003)]
    work(app)
    return ids


def test_dead_letters_are_exported_as_json_lines(app: str, capsys: Capture, declined: list[str]) -> None:
    lines = output(capsys, "dead", "export", "--url", URL).splitlines()
    letters = [json.loads(line) for line in lines]
    assert [letter["id"] for letter in letters] == declined
    assert letters[0]["payload"] == {"order": 1001}
    assert "traceback" not in letters[0]
    [line] = output(capsys, "dead", "export", declined[1], "--tracebacks", "--url", URL).splitlines()
    assert "declined" in json.loads(line)["traceback"]
    assert output(capsys, "dead", "export", "--code", "OTHER", "--url", URL) == ""


# -- many jobs --------------------------------------------------------------------------------------------------------
def test_jobs_are_found_by_an_argument(app: str, capsys: Capture, declined: list[str]) -> None:
    page = answer(capsys, "jobs", "list", "--arg", "order=1002", "--url", URL)
    assert [row["id"] for row in page["jobs"]] == [declined[1]]
    assert answer(capsys, "jobs", "list", "--arg", 'order="1002"', "--url", URL)["jobs"] == []


def test_a_dry_run_counts_shows_some_and_changes_nothing(
    app: str, capsys: Capture, declined: list[str]
) -> None:
    dry = answer(capsys, "jobs", "retry", "--task", "charge", "--dry-run", "--url", URL)
    assert (dry["matched"], dry["dry_run"]) == (3, True)
    assert {row["id"] for row in dry["sample"]} == set(declined)
    text = output(capsys, "jobs", "retry", "--arg", "order=1001", "--dry-run", "--url", URL)
    assert text.startswith("1 would be retried; nothing was changed")
    assert declined[0] in text
    assert declined[1] not in text
    assert answer(capsys, "operations", "list", "--url", URL)["operations"] == []


def test_all_jobs_that_match_are_retried_by_workers(app: str, capsys: Capture, declined: list[str]) -> None:
    begun = answer(capsys, "jobs", "retry", "--task", "charge", "--arg", "order=1002", "--url", URL)
    assert (begun["action"], begun["matched"]) == ("retry", 1)
    assert begun["by"].startswith("cli")
    work(app)
    assert [job(app, job_id).manual_retry_count for job_id in declined] == [0, 1, 0]
    assert with_app(app, lambda app: app.operations.get(begun["id"])).done == 1


def test_dead_letters_are_redriven_with_a_canary_and_a_patch(
    app: str, capsys: Capture, declined: list[str]
) -> None:  # E32 E67
    words = ["dead", "redrive", "--task", "charge", "--patch", '{"order": 7}', "--app", app]
    text = output(capsys, *words, "--rate", "2", "--ramp-from", "1", "--to-queue", "slow", "--dry-run")
    assert text.startswith("3 would be redriven; nothing was changed\nThis takes 3 s at that rate.")
    assert '{"order":7}' in text
    dry = answer(capsys, *words, "--dry-run")
    assert (dry["sample"][0]["after"], dry["lasts"]) == ({"order": 7}, None)
    begun = answer(capsys, *words, "--canary", "2")
    assert (begun["phase"], begun["options"]["canary"], "state" in begun) == ("canary", 2, False)
    carry_out(app)
    assert [job(app, one).generation for one in declined].count(2) == 2
    work(app)
    while (shown := answer(capsys, "operations", "show", begun["id"], "--app", app))["progress"] == "running":
        carry_out(app)
    assert (shown["progress"], shown["failed_again"]) == ("stopped", 2)
    assert "of the canary of 2 failed again" in shown["error"]
    listed = output(capsys, "operations", "list", "--app", app)
    assert "stopped" in listed
    assert "2 of 3, 2 failed again" in listed
    assert "--patch is not JSON" in output(
        capsys, "dead", "redrive", "--all", "--patch", "{", "--app", app, code=2
    )
    limited = output(
        capsys, "dead", "redrive", "--all", "--canary", "1", "--limit", "1", "--app", app, code=2
    )
    assert "--limit is for a redrive that this command carries out itself" in limited
    assert "nothing that could be redriven has the id x" in output(
        capsys, "dead", "redrive", "x", "--dry-run", "--app", app, code=4
    )


def test_jobs_are_retried_with_a_canary(app: str, capsys: Capture, declined: list[str]) -> None:  # E33 E67
    begun = answer(capsys, "jobs", "retry", "--task", "charge", "--canary", "1", "--app", app)
    carry_out(app)
    assert with_app(app, lambda app: app.operations.get(begun["id"])).done == 1


def test_all_jobs_that_match_are_cancelled_with_a_reason(app: str, capsys: Capture) -> None:
    ids = [
        enqueue(capsys, app, "send", f"to={name}", "--delay", "1h", "--owner", name)
        for name in ("ann", "bob")
    ]
    text = output(capsys, "jobs", "cancel", "--owner", "ann", "--reason", "left", "--url", URL)
    assert "1 jobs match" in text
    assert "No worker is running" in text
    carry_out(app)
    assert [job(app, job_id).state for job_id in ids] == ["cancelled", "queued"]


@pytest.mark.parametrize("command", ["retry", "cancel"])
def test_a_command_for_many_jobs_says_which(app: str, capsys: Capture, command: str) -> None:
    text = output(capsys, "jobs", command, "--url", URL, code=2)
    assert "say which jobs: ids, a filter such as --task or --state, or --all" in text
    assert "0 jobs match" in output(capsys, "jobs", command, "--all", "--url", URL)


def test_other_arguments_are_for_single_jobs(app: str, capsys: Capture) -> None:
    words = ("jobs", "retry", "--task", "send", "--args", "{}", "--url", URL)
    assert "--args and --from-step are for jobs named by their ids" in output(capsys, *words, code=2)


def test_a_forecast_counts_what_will_be_due(app: str, capsys: Capture) -> None:  # E67 E68
    for _ in range(2):
        enqueue(capsys, app, "send", "to=ann", "--delay", "7m")
    found = answer(capsys, "queues", "forecast", "--url", URL)
    assert [(one["retries"], one["delayed"]) for one in found["scheduled"]] == [(0, 2)]
    assert "in 5 m" in output(capsys, "queues", "forecast", "--url", URL)
    assert "No job will be due" in output(capsys, "queues", "forecast", "--within", "5m", "--url", URL)
    assert "more than 1000 buckets" in output(
        capsys, "queues", "forecast", "--within", "30d", "--bucket", "1s", "--url", URL, code=2
    )

"""Logs: structured, without secrets, without stack traces for a database that is away (E63)."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from holdfast import logging as logs
from holdfast.errors import StoreUnavailable, UsageError
from holdfast.logging import Log

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process of ours, in which nobody has set up anything, and as it was afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    monkeypatch.setattr(ours, "handlers", [])
    before = ours.level, ours.propagate
    yield
    ours.setLevel(before[0])
    ours.propagate = before[1]
    structlog.reset_defaults()


@pytest.fixture(params=["ours", "structlog"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our own voice where nobody has imported structlog, and structlog itself where somebody has."""
    if request.param == "structlog":
        return structlog.get_logger()
    monkeypatch.delitem(sys.modules, "structlog")
    return Log("holdfast.test")


@pytest.fixture
def as_json(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOG", "json")
    monkeypatch.delenv("HOLDFAST_LOG_LEVEL", raising=False)
    logs.configure()


def line(capsys: Capture) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().err)
    return found


def test_a_json_line_holds_the_event_and_its_facts(as_json: None, log: Any, capsys: Capture) -> None:  # E63
    log.warning("job.failed", job_id="j1", attempt=2, duration_ms=5, error_code="NETWORK")
    told = line(capsys)
    assert told.pop("timestamp")
    assert told == {
        "event": "job.failed",
        "level": "warning",
        "job_id": "j1",
        "attempt": 2,
        "duration_ms": 5,
        "error_code": "NETWORK",
        "status": "failed",
    }


def test_secrets_are_hidden_wherever_they_are(as_json: None, log: Any, capsys: Capture) -> None:  # E63
    log.info(
        "x",
        password="hunter2",
        headers={"Authorization": "Bearer hunter2", "accept": "*"},
        urls=["postgresql://me:hun:ter2@db/x"],
        reason="cannot reach postgresql://me:hunter2@db:5432/x?password=hunter2",
        apiToken="hunter2",
        tokens_used=3,
    )
    text = capsys.readouterr().err
    assert "hunter2" not in text
    assert "ter2" not in text
    told = json.loads(text)
    assert told["reason"].startswith("cannot reach postgresql://me:***@db:5432/x")
    assert told["headers"]["accept"] == "*"
    assert told["tokens_used"] == 3


def test_a_database_that_is_away_is_one_line_without_a_traceback(
    as_json: None, log: Any, capsys: Capture
) -> None:
    try:
        raise StoreUnavailable("jobs.db is locked")
    except StoreUnavailable:
        log.exception("maintenance.failed")
    told = line(capsys)
    assert told["reason"] == "jobs.db is locked"
    assert "exception" not in told


def test_a_bug_keeps_its_traceback_but_not_its_secrets(as_json: None, log: Any, capsys: Capture) -> None:
    try:
        raise ValueError("postgresql://me:hunter2@db")
    except ValueError:
        log.exception("maintenance.failed")
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "postgresql://me:***@db" in text
    assert "hunter2" not in text


def test_the_console_is_for_people(log: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("HOLDFAST_LOG", "console")
    logs.configure()
    log.info("worker.started", worker="w1", token="hunter2")
    log.debug("not shown")
    text = capsys.readouterr().err
    assert "worker.started" in text
    assert "worker=w1" in text
    assert "hunter2" not in text
    assert "\x1b" not in text  # no colour where nobody looks
    assert text.count("\n") == 1


_FORGED = "2026-01-01T00:00:00.000000Z [info     ] job.completed                  job_id=forged"
_SIGNS = [
    "\n",
    "\r\n",
    "\r",
    "\x0b",
    "\x0c",
    "\x1b[2J",
    "\x9b2J",
    "\x85",
    "\u2028",
    "\u202e",
    "\x00",
    "\x7f",
    "\x1c",
]


@pytest.mark.parametrize("sign", _SIGNS, ids=repr)
@pytest.mark.parametrize("where", ["event", "fact", "name", "object", "list", "exception", "cause"])
def test_foreign_text_makes_no_line_on_the_console_and_reaches_no_terminal(
    log: Any, sign: str, where: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:  # E63
    monkeypatch.setenv("HOLDFAST_LOG", "console")
    logs.configure()
    text = f"x{sign}{_FORGED}{sign}"

    class Shown:
        def __repr__(self) -> str:
            return text

    match where:
        case "event":
            log.info(text)
        case "fact":
            log.info("said", what=text, short=sign)
        case "name":
            log.info("said", **{text: 1})
        case "object":
            log.info("said", what=Shown())
        case "list":
            log.info("said", what=[text, {"a": Shown()}])
        case _:
            try:
                if where == "exception":
                    raise ValueError(text)
                raise RuntimeError("outer") from ValueError(text)
            except (RuntimeError, ValueError):
                log.exception("failed")
    first, *below = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert first.isprintable()
    assert first.startswith("20")
    assert bool(below) is (where in ("exception", "cause"))
    for line in below:  # a traceback has many lines, and none begins where ours do
        assert line.isprintable()
        assert line == "" or line.startswith("  ")


def test_what_a_library_says_makes_no_line_either(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:  # E63
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("HOLDFAST_LOG", "console")
    logs.configure()
    logging.getLogger("shop").warning("bought %s", f"x\n{_FORGED}\x1b[2J")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.removesuffix("\n").isprintable()
    assert f"bought x\\n{_FORGED}\\x1b[2J" in said


def test_the_level_is_chosen_by_the_environment(
    log: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "debug")
    logs.configure(quiet=True)
    log.debug("shown")
    assert "shown" in capsys.readouterr().err


def test_quiet_says_only_errors(log: Any, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.delenv("HOLDFAST_LOG_LEVEL", raising=False)
    logs.configure(quiet=True)
    log.warning("not shown")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["HOLDFAST_LOG", "HOLDFAST_LOG_LEVEL"])
def test_a_wrong_setting_is_refused_with_those_there_are(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "loud")
    with pytest.raises(UsageError, match=f"{name} is 'loud'; it is one of"):
        logs.configure()


def test_an_app_that_has_set_up_its_own_logs_keeps_them() -> None:
    mine = [structlog.processors.KeyValueRenderer()]
    structlog.configure(processors=mine)
    logs.configure(keep=True)
    assert structlog.get_config()["processors"] is mine


def test_the_standard_librarys_logs_take_the_same_road(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("HOLDFAST_LOG", "json")
    logs.configure()
    logging.getLogger("shop").warning("bought with %s", "password=hunter2")
    told = line(capsys)
    assert told["logger"] == "shop"
    assert told["event"] == "bought with password=***"


def test_an_app_that_has_set_up_logging_gets_readable_lines_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: Capture
) -> None:
    monkeypatch.delitem(sys.modules, "structlog")
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])
    logs.configure(keep=True)
    Log("holdfast.test").warning("store.unavailable", reason="locked", password="hunter2", breaker=None)
    assert caplog.messages == ["store.unavailable reason=locked password=***"]
    assert capsys.readouterr().err == ""


def test_nothing_of_structlog_is_loaded_for_a_worker() -> None:
    """It brings a third of a worker's start with it."""
    code = (
        "import sys; from holdfast import logging; from holdfast.cli import main, worker, supervisor;"
        " import holdfast.app, holdfast.worker.worker; logging.configure();"
        " print(sorted({'structlog', 'rich', 'pydantic'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"

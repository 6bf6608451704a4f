"""`holdfast policies` from the command line, on a real SQLite file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast.cli import main

Capture = pytest.CaptureFixture[str]
APP = """
from holdfast import Holdfast

app = Holdfast("sqlite:///shop.db")

@app.task(retry=3)
async def convert() -> None: ...
"""
KEY = "tasks.convert.max_attempts"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "240")  # so that no cell is folded
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    (tmp_path / "policied_shop.py").write_text(APP)
    yield tmp_path
    structlog.reset_defaults()


def said(capsys: Capture, *command: str, code: int = 0) -> str:
    assert main(["policies", *command, "--app", "policied_shop:app"]) == code
    out, err = capsys.readouterr()
    return out + err


def answer(capsys: Capture, *command: str) -> Any:
    return json.loads(said(capsys, *command, "--json"))


def test_an_override_is_set_shown_and_unset(capsys: Capture, folder: Path) -> None:  # E10 E67
    assert main(["migrate", "--url", "sqlite:///shop.db"]) == 0
    capsys.readouterr()
    (folder / "holdfast.toml").write_text("[tasks.convert]\nmax_attempts = 4\n")
    assert said(capsys) == "No overrides; `holdfast policies set KEY VALUE` makes one.\n"
    text = said(capsys, "set", KEY, "7", "--reason", "bank is slow", "--by", "ann", "--for", "2h")
    assert text == f"{KEY} is overridden (version 1), ends in 2 h\n"
    [row] = answer(capsys)["overrides"]
    assert (row["key"], row["value"], row["by"], row["reason"]) == (KEY, 7, "ann", "bank is slow")
    [shown] = answer(capsys, "show", KEY)["policies"]
    assert (shown["value"], shown["without"], shown["override"]) == (7, 4, row)
    assert "override by ann: bank is slow, ends in 2 h" in said(capsys, "show", "tasks.convert")
    assert said(capsys, "export") == "[tasks.convert]\nmax_attempts = 7  # ann: bank is slow\n"
    assert "version 1" in said(capsys, "set", KEY, "8", "--version", "0", code=3)
    assert (
        said(capsys, "unset", KEY, "--by", "bob", "--reason", "over") == f"{KEY} is not overridden any more\n"
    )
    assert said(capsys, "unset", KEY) == f"{KEY} is not overridden\n"
    assert "bob: over" in said(capsys, "history", KEY)
    [ended] = answer(capsys, "history")["overrides"]
    assert (ended["ended_by"], ended["version"]) == ("bob", 1)
    assert "holdfast.toml:2" in said(capsys, "show", KEY)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("2.5", 2.5), ("false", False), ("10s", "10s"), ('"10s"', "10s"), ("100/min", "100/min"),
     ('{ fixed = "5s" }', {"fixed": "5s"}), ('["5s", "25s"]', ["5s", "25s"]), ("full", "full")],
)  # fmt: skip
def test_a_value_is_written_as_in_the_file_and_a_text_without_quotes(text: str, value: Any) -> None:  # E67
    from holdfast.tasks.policy_file.overrides import read_value

    assert read_value(text) == value


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["set", KEY, "0"], "tasks.convert.max_attempts: max_attempts is 0; it is a whole number, 1 to 1000"),
        (["set", "tasks.convert.max_attemps", "3"], "there is no such key here; did you mean max_attempts?"),
        (["set", "convert", "3"], "this section cannot be overridden"),
        (["set", KEY, "9" * 5000], "the value has 5,002 characters"),
        (["set", KEY, "[" * 5000], "the value has 5,002 characters"),
        (["show", "tasks..x"], "the key is 'tasks..x'; write it as in holdfast.toml"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(command: list[str], words: str, capsys: Capture) -> None:  # E67
    assert main(["migrate", "--url", "sqlite:///shop.db"]) == 0
    capsys.readouterr()
    text = said(capsys, *command, code=2)
    assert words in text
    assert len(text.splitlines()) == 1

"""What is passed to a command is not obeyed by the terminal when the command speaks of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from holdfast.cli import COMMANDS, main
from holdfast.cli.loading import _find

Capture = pytest.CaptureFixture[str]

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\u202ex\n2026-01-01T00:00:00Z [info     ] forged"
#: They run until they are stopped, or measure for seconds; their options are read by the same parser.
_LONG = {"up", "worker", "scheduler", "relay", "serve", "bench", "demo", "simulate", "doctor"}


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from _commands(one, (*path, name))


def _words_of(command: Any) -> Iterator[tuple[str, list[str]]]:
    """Each argument and each option of *command* with the hostile text, the other arguments with a plain one."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    for hostile in arguments:
        yield hostile.name, [HOSTILE if one is hostile else "x" for one in arguments]
    for option in command.params:
        if option.param_type_name == "option" and not option.is_flag and option.opts[0] != "--help":
            yield option.opts[0], [*["x" for _ in arguments], option.opts[0], HOSTILE]


def _cases() -> Iterator[Any]:
    for name in sorted(COMMANDS.keys() - _LONG):
        found = _find(name)
        assert isinstance(found, typer.Typer)
        for path, command in _commands(get_command(found), (name,)):
            for which, words in _words_of(command):
                yield pytest.param([*path, *words], id=f"{' '.join(path)} {which}")
        yield pytest.param([name, HOSTILE], id=f"{name} (command)")
        yield pytest.param([name, f"--{HOSTILE}"], id=f"{name} (option)")
    yield pytest.param([HOSTILE], id="(command)")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('cli') / 'jobs.db'}"
    assert main(["migrate", "--url", url]) == 0
    return url


@pytest.mark.parametrize("words", list(_cases()))
def test_no_command_gives_escapes_back(
    words: list[str], database: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # E67
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    monkeypatch.chdir(tmp_path)
    main(words)
    said = capsys.readouterr()
    for line in (said.out + said.err).split("\n"):
        assert line.isprintable(), line
        assert not line.startswith("2026-01-01T00:00:00Z")

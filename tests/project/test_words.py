"""The words of the source, the documentation and the command line: some are refused, others may only become fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer import Typer
from typer.main import get_command

from holdfast.cli import COMMANDS
from holdfast.cli.loading import _find
from tools.words import COUNTED, counted, refused, texts

FOUND = list(texts())


def _helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the help of *command*, of its options and of its subcommands, as a person reads them."""
    options = [getattr(one, "help", None) for one in command.params]
    yield path, "\n".join(text for text in (command.help, *options) if text)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _helps(inner, f"{path} {name}")


def test_no_file_uses_a_refused_word() -> None:
    assert [str(place) for place in refused(FOUND)] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_help_of_the_command_line_uses_a_refused_word(name: str) -> None:
    command = _find(name)
    helps = list(_helps(get_command(command) if isinstance(command, Typer) else command, f"holdfast {name}"))
    assert any(text for _, text in helps)
    assert [str(place) for place in refused(helps)] == []


@pytest.mark.parametrize("word", sorted(COUNTED))
def test_a_counted_word_becomes_rarer(word: str) -> None:
    found, allowed = counted(FOUND)[word], COUNTED[word]
    print(f"{word}: {found} (allowed: {allowed})")
    assert found <= allowed, (
        f"{word!r} occurs {found} times, {found - allowed} more than tools/words.py allows"
    )


def test_the_checked_files_are_those_of_the_project() -> None:
    paths = {path for path, _ in FOUND}
    assert {"README.md", "ARCHITECTURE.md", "src/holdfast/app.py", "docs/reference/cli.md"} <= paths
    assert any(path.endswith("enqueue_again.sql") for path in paths)
    assert not any(path.startswith("docs/adr/") for path in paths)


def test_a_refused_word_is_found_in_every_form() -> None:
    text = "It STRIKES a\nletter.\nSo many of them.\nA strike_price is a name; so is so_many.\nIts so-manieth life."
    assert [place.line for place in refused([("x.md", text)])] == [1, 3, 5]


def test_words_are_counted_without_regard_to_case() -> None:
    assert counted([("x", "Told, told; retold. told_apart"), ("y", "Nobody")]) == {"told": 2, "nobody": 1}

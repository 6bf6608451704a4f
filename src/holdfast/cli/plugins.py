"""Commands from other packages.

Installed packages name them by entry points of the group `holdfast.commands`, and the project in the working directory in its
pyproject.toml:

    [tool.holdfast.commands]
    reports = "systems.reports.__main__:main"

Each is a `typer.Typer`, or a function that takes the list of arguments and returns the exit code. Holdfast's own commands
cannot be replaced.
"""

from __future__ import annotations

import os
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from holdfast.errors import UsageError

GROUP = "holdfast.commands"
PROJECT = Path("pyproject.toml")


def plugins() -> dict[str, EntryPoint]:
    from holdfast.cli import COMMANDS

    found = sorted([*entry_points(group=GROUP), *_of_project()], key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if entry.name not in COMMANDS}


def plugin_names() -> dict[str, str]:
    """Return the names of these commands and their packages. None of them is loaded."""
    return {name: entry.dist.name if entry.dist else entry.value for name, entry in plugins().items()}


def _of_project() -> list[EntryPoint]:
    try:
        tools = tomllib.loads(PROJECT.read_text(encoding="utf-8")).get("tool", {})
    except OSError:
        return []
    except ValueError as error:
        raise UsageError(f"{PROJECT} cannot be read: {error}") from error
    given = tools.get("holdfast", {}).get("commands", {})
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise UsageError(f'{PROJECT}: tool.holdfast.commands is a table of name = "module:function"')
    if given and (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    return [EntryPoint(name, value, GROUP) for name, value in given.items()]

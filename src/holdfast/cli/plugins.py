"""Commands that other packages add: entry points of the group `holdfast.commands`.

An entry point is a `typer.Typer`, or a function that is given the arguments and answers the exit code.
A command of Holdfast's own is never replaced.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

GROUP = "holdfast.commands"


def plugins() -> dict[str, EntryPoint]:
    from holdfast.cli import COMMANDS

    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if entry.name not in COMMANDS}


def plugin_names() -> dict[str, str]:
    """Their names and packages; none of them is loaded."""
    return {name: entry.dist.name if entry.dist else entry.value for name, entry in plugins().items()}

"""The options that several commands share, spelled once."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

#: For every `typer.Typer` here: plain help, because drawing boxes takes longer than the command.
PLAIN: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "no_args_is_help": True,
}

AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="PKG.MODULE:NAME", help="Use this app's database and tasks."),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The database, e.g. sqlite:///jobs.db. Default: HOLDFAST_DATABASE_URL."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many.")]
AfterOption = Annotated[str | None, typer.Option("--after", help="The `next` of the page before.")]
AppArgument = Annotated[str, typer.Argument(metavar="APP", help="pkg.module:name of a Holdfast app.")]


def words(values: list[str] | None) -> list[str]:
    """`--state failed,cancelled` and `--state failed --state cancelled` are the same."""
    return [word.strip() for value in values or [] for word in value.split(",") if word.strip()]


def current_user() -> str:
    """Who is on record for a move made from here."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"

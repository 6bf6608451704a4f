"""The options that several commands share, spelled once."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from holdfast.errors import UsageError

#: Options of every `typer.Typer` here. Help is plain, because drawing boxes takes longer than the command.
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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Print at most this many.")]
AfterOption = Annotated[
    str | None, typer.Option("--after", help="Continue after this cursor, the `next` of the page before.")
]
AppArgument = Annotated[str, typer.Argument(metavar="APP", help="pkg.module:name of a Holdfast app.")]


def text_option(name: str, text: str, metavar: str | None = None) -> Any:
    """Return the type of an option that is a text, or None where it is left out."""
    return Annotated[str | None, typer.Option(f"--{name}", metavar=metavar, help=text)]


def needed(app: str | None, what: str) -> str:
    """Return the option `--app` of a command that needs it to know *what*. Raises `UsageError` when it is missing."""
    if app is None:
        raise UsageError(f"only the app knows {what}; name it with --app pkg.module:name")
    return app


def words(values: list[str] | None) -> list[str]:
    """Return all words: `--state failed,cancelled` is the same as `--state failed --state cancelled`."""
    return [word.strip() for value in values or [] for word in value.split(",") if word.strip()]


def current_user() -> str:
    """Return the name that events record for what this command does."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"

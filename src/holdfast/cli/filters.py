"""The options that select jobs and dead letters, spelled once for all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import text_option, words
from holdfast.errors import UsageError
from holdfast.values.pairs import read_pairs

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.jobs.job import JobRow

#: The filters that were given, by the names that `app.jobs` and `app.dead_letters` use.
Where = dict[str, Any]


def _some(name: str, text: str) -> Any:
    return Annotated[list[str] | None, typer.Option(f"--{name}", help=f"{text}; may be repeated.")]


#: The options by their names.
FILTERS: dict[str, Any] = {
    "state": _some("state", "Only queued, processing, complete, failed or cancelled"),
    "task": _some("task", "Only this task"),
    "queue": _some("queue", "Only this queue"),
    "code": _some("code", "Only failures with this code"),
    "fingerprint": text_option("fingerprint", "Only this cause; `dead groups` lists causes."),
    "owner": text_option("owner", "Only jobs of this owner."),
    "tag": text_option("tag", "Only jobs with this tag."),
    "key": text_option("key", "Only jobs with this key."),
    "error_code": text_option("error-code", "Only failures with this code."),
    "created_after": text_option(
        "created-after", "Only jobs created at this time or later, e.g. 2026-02-03T14:00."
    ),
    "created_before": text_option("created-before", "Only jobs created before this time."),
    "arg": Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="NAME=VALUE",
            help="Only calls with this argument, e.g. order=1001; may be repeated.",
        ),
    ],
    "internal": Annotated[bool, typer.Option("--internal", help="Include the engine's own jobs.")],
}


def read_filters(given: dict[str, Any]) -> Where:
    """Return the values of the options in *given* as filters, without those that are left out."""
    where = dict(_filter(name, value) for name, value in given.items())
    return {name: value for name, value in where.items() if value}


def _filter(name: str, value: Any) -> tuple[str, Any]:
    """Return the filter that an option says. Raise `UsageError` for an empty value: as no filter it would select everything."""
    if name == "arg":
        return "args", read_pairs(value or [])
    chosen = words(value) if isinstance(value, list) else value
    if value is not None and value is not False and not chosen:
        raise UsageError(f"--{name.replace('_', '-')} is empty; write a value, or leave it out")
    return name, chosen


async def find_jobs(
    app: Holdfast, after: str | None, limit: int, where: Where
) -> tuple[list[JobRow], str | None]:
    """Return the next *limit* jobs that match and the cursor behind them, however many pages of the app that takes."""
    rows: list[JobRow] = []
    while True:
        page = await app.jobs.list(after=after, limit=limit - len(rows), **where)
        rows, after = rows + page.rows, page.next
        if after is None or len(rows) == limit:
            return rows, after

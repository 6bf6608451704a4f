"""Commands that change every job that matches a filter: they count first, and begin an operation."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.arguments import read_arguments
from holdfast.cli.command import Cli
from holdfast.cli.exit_codes import NothingFound
from holdfast.cli.filters import Where
from holdfast.cli.options import current_user
from holdfast.cli.times import span
from holdfast.cli.views import print_json, say, view
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.engine.operation import Operation
    from holdfast.engine.previews import Preview

AllOption = Annotated[bool, typer.Option("--all", help="Select all jobs; without a filter you must say so.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, change nothing.")]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, help="Change at most this many jobs a second.")
]
#: The options of what makes jobs run again: a pace that stops by itself, and other arguments.
PACED: dict[str, Any] = {
    "canary": Annotated[
        int | None,
        typer.Option("--canary", min=1, help="Move this many first, and wait until these have ended."),
    ],
    "ramp_from": Annotated[
        float | None,
        typer.Option(
            "--ramp-from",
            min=0.001,
            help="Begin with this many a second; it doubles each minute until it is --rate.",
        ),
    ],
    "stop_above": Annotated[
        float | None,
        typer.Option(
            "--stop-above",
            min=0,
            max=1,
            help="Stop when more than this share of the last 50 that ended have failed again.  [default: 0.2 with --canary or --ramp-from]",
        ),
    ],
    "patch": Annotated[
        str | None,
        typer.Option(
            "--patch",
            metavar="JSON",
            help="Change their arguments by this JSON merge patch; null removes one. Needs --task and --app.",
        ),
    ],
}
_DONE = {"retry": "retried", "cancel": "cancelled", "redrive": "redriven"}


def read_paced(given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the options `PACED` that were given, as `app.operations` takes them."""
    found = {name: value for name, value in given.items() if value is not None}
    if "patch" in found:
        found["patch"] = read_arguments(found["patch"], "--patch")
    return found


def selects_many(where: Where, ids: list[str] | None, everything: bool, *more: object) -> bool:
    """Return whether a command is for an operation: by a filter rather than by ids alone, or with one of *more* options.

    Raises `UsageError` when it selects none.
    """
    is_filter = bool(where.keys() - {"internal"}) or everything
    if not is_filter and not ids:
        raise UsageError("say which jobs: ids, a filter such as --task or --state, or --all")
    return is_filter or any(more)


def begin(
    cli: Cli, action: str, where: Where, ids: list[str] | None, *, dry_run: bool, **options: Any
) -> None:
    """Begin an operation on all that match, or with *dry_run* print what it would do."""
    options |= {**where, "ids": ids} if ids else where

    async def run(app: Holdfast) -> tuple[Operation, bool]:
        operation = await app.operations.begin(action, by=current_user(), **options)
        return operation, bool(await app.queues.workers())

    if dry_run:
        _show_preview(cli, cli.ask(lambda app: app.operations.preview(action, **options)), ids)
        return
    operation, has_worker = cli.ask(run)
    if cli.as_json:
        print_json(operation_view(operation))
    else:
        say(f"operation {operation.id} has begun: {operation.matched:,} jobs match")
        if not has_worker:
            print("No worker is running; it is done when one starts.")
        print(f"Progress: holdfast operations show {operation.id}")


def operation_view(operation: Operation) -> dict[str, Any]:
    """Return the fields of an operation, and what can be derived from them."""
    derived = ("phase", "skipped", "ended", "failed_again", "current_rate", "next_at")
    return view(operation, without=("state",)) | {name: getattr(operation, name) for name in derived}


def _show_preview(cli: Cli, found: Preview, ids: list[str] | None) -> None:
    if ids and not found.matched:
        raise NothingFound(f"nothing that could be {_DONE[found.action]} has the id {', '.join(ids)}")
    if cli.as_json:
        spans = {name: _seconds(getattr(found, name)) for name in ("lasts", "drains_in")}
        print_json(view(found) | spans | {"sample": [view(job) for job in found.sample], "dry_run": True})
        return
    from holdfast.cli.tables import show_table

    skipped = sum(found.skipped.values())
    more = "+" if found.is_capped else ""
    print(f"{found.matched - skipped:,}{more} would be {_DONE[found.action]}; nothing was changed")
    for reason, count in found.skipped.items():
        say(f"{count:,} would be skipped: {reason}")
    if found.lasts is not None:
        print(f"This takes {span(found.lasts.total_seconds())} at that rate.")
    if found.drains_in is not None:
        say(
            f"{found.waiting:,} wait in {', '.join(found.queues)}. With these, all are done in about"
            f" {span(found.drains_in.total_seconds())}."
        )
    if found.sample:
        show_table(
            ["id", "task", "queue", "state", "error", "skipped", "before", "after"],
            [
                (j.id, j.task, j.queue, j.state, j.error_code, j.skipped, j.before or None, j.after or None)
                for j in found.sample
            ],
            empty="",
        )
    if found.matched > len(found.sample) > 0:
        print(f"… and {found.matched - len(found.sample):,}{more} more")


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()

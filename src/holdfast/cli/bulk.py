"""Commands that change every job that matches a filter: they count first, and begin an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli
from holdfast.cli.filters import Where, find_jobs
from holdfast.cli.options import current_user
from holdfast.cli.views import print_json, say, view
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.engine.operation import Operation
    from holdfast.jobs.job import JobRow

AllOption = Annotated[bool, typer.Option("--all", help="Select all jobs; without a filter you must say so.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Count what matches, show some, change nothing.")
]
RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, help="Change at most this many jobs a second.")
]
#: How many jobs a dry run shows.
SAMPLE = 5
_DONE = {"retry": "retried", "cancel": "cancelled"}


def selects_many(
    where: Where, ids: list[str] | None, everything: bool, dry_run: bool, rate: float | None
) -> bool:
    """Return whether a command selects jobs by a filter rather than by ids alone.

    Raises `UsageError` when it selects none.
    """
    is_filter = bool(where.keys() - {"internal"}) or everything
    if not is_filter and not ids:
        raise UsageError("say which jobs: ids, a filter such as --task or --state, or --all")
    return is_filter or dry_run or rate is not None


def begin(
    cli: Cli, action: str, where: Where, ids: list[str] | None, *, dry_run: bool, **options: Any
) -> None:
    """Begin an operation on all jobs that match, or with *dry_run* print how many there are and some of them."""
    filters = {**where, "ids": ids} if ids else where

    async def run(app: Holdfast) -> tuple[Operation, list[JobRow], bool]:
        operation = await app.operations.begin(
            action, by=current_user(), dry_run=dry_run, **options, **filters
        )
        if not dry_run:
            return operation, [], bool(await app.queues.workers())
        sample, _ = await find_jobs(app, None, SAMPLE, operation.filter)
        return operation, sample, True

    operation, sample, has_worker = cli.ask(run)
    if dry_run:
        _show_matches(cli, operation, sample)
    elif cli.as_json:
        print_json(view(operation))
    else:
        say(f"operation {operation.id} has begun: {operation.matched:,} jobs match")
        if not has_worker:
            print("No worker is running; it is done when one starts.")
        print(f"Progress: holdfast operations show {operation.id}")


def _show_matches(cli: Cli, operation: Operation, sample: list[JobRow]) -> None:
    if cli.as_json:
        shown = [{"id": row.id, "task": row.task, "queue": row.queue, "state": row.state} for row in sample]
        print_json({"matching": operation.matched, "sample": shown, "dry_run": True})
        return
    from holdfast.cli.tables import show_table

    print(f"{operation.matched:,} would be {_DONE[operation.action]}; nothing was changed")
    if sample:
        show_table(
            ["id", "task", "queue", "state", "queued", "error"],
            [(r.id, r.task, r.queue, r.state, r.queued_at, r.error_code) for r in sample],
            empty="",
        )
    if operation.matched > len(sample) > 0:
        print(f"… and {operation.matched - len(sample):,} more")

"""`holdfast queues`: list queues; pause and resume queues and other scopes."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.command import Cli, command, list_by_default
from holdfast.cli.options import PLAIN, AfterOption, LimitOption
from holdfast.cli.pauses import ByOption, ForOption, ReasonOption, held_by, held_view
from holdfast.cli.pauses import pause as pause_scope
from holdfast.cli.pauses import resume as resume_scope
from holdfast.cli.views import view

queues = typer.Typer(
    help="List queues; pause and resume queues, tasks, lanes, dependencies and maintenance.",
    **(PLAIN | {"no_args_is_help": False}),
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The queue, or the scope of another --kind.")
]
KindOption = Annotated[
    str, typer.Option("--kind", help="queue, task, lane, dependency, schedule or maintenance.")
]


@command(queues, "list")
def list_(cli: Cli, limit: LimitOption = 100, after: AfterOption = None) -> None:
    """List the queues that were ever used, by name. Each has what waits, which workers serve it, and whether it is paused."""
    found = cli.ask(lambda app: app.queues.list(after=after, limit=limit + 1))
    shown, following = found[:limit], found[limit - 1].name if len(found) > limit else None
    rows = [view(queue) | {"held": held_view(queue.held)} for queue in shown]
    cli.table(
        {"queues": rows, "next": following},
        ["queue", "waiting", "workers", "tasks", "held"],
        ((q.name, f"{q.waiting:,}", q.workers, ", ".join(q.tasks), held_by(q.held)) for q in shown),
        empty="No queue was used yet.",
        more=following,
        to_continue="list --after",
    )


list_by_default(queues, list_)


@command(queues)
def forecast(
    cli: Cli,
    within: Annotated[str, typer.Option("--within", help="How far to look ahead.")] = "1h",
    bucket: Annotated[str, typer.Option("--bucket", help="The length of a piece of time.")] = "5m",
) -> None:
    """Count the jobs that will be due, by time and dependency."""
    found = cli.ask(lambda app: app.queues.forecast(within=within, bucket=bucket))
    rows = [row._asdict() for row in found.scheduled]
    cli.table(
        view(found) | {"bucket": found.bucket.total_seconds(), "scheduled": rows},
        ["from", "dependency", "retries", "delayed"],
        ((row.at, row.dependency, f"{row.retries:,}", f"{row.delayed:,}") for row in found.scheduled),
        empty="No job will be due in that time.",
    )
    if found.is_capped and not cli.as_json:
        print(
            f"Very many jobs are scheduled; those that are due after {found.until:%H:%M:%S} UTC were not counted."
        )


@command(queues)
def pause(
    name: NameArgument,
    cli: Cli,
    kind: KindOption = "queue",
    duration: ForOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
) -> None:
    """Start no more jobs of a queue or another scope for now. The pause lasts until it is ended, or for a time. Running jobs continue."""
    pause_scope(cli, kind, name, duration=duration, reason=reason, by=by)


@command(queues)
def resume(name: NameArgument, cli: Cli, kind: KindOption = "queue", by: ByOption = None) -> None:
    """End a pause."""
    resume_scope(cli, kind, name, by=by)

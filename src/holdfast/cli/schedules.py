"""`holdfast schedules`: list them, run one now, pause, resume and forget one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli, command, list_by_default
from holdfast.cli.options import PLAIN, needed
from holdfast.cli.pauses import ByOption, ForOption, ReasonOption, held_by, held_view
from holdfast.cli.pauses import pause as pause_scope
from holdfast.cli.pauses import resume as resume_scope
from holdfast.cli.views import view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.engine.schedules import ScheduleRow

schedules = typer.Typer(
    help="List schedules; run, pause, resume and forget them.",
    **(PLAIN | {"no_args_is_help": False}),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]


@command(schedules, "list")
def list_(cli: Cli) -> None:
    """List the schedules that a worker has served. With --app, list those that the app declares too."""
    rows = cli.ask(lambda app: app.schedules.list())
    cli.table(
        {"schedules": [_view(row) for row in rows]},
        ["schedule", "task", "when", "zone", "last", "next", "held by"],
        ((row.name, row.task, row.when, row.zone, row.last, row.next, held_by(row.held)) for row in rows),
        empty="No schedules; --app shows those of an app that no worker has served yet.",
    )


list_by_default(schedules, list_)


def _view(row: ScheduleRow) -> dict[str, Any]:
    return view(row) | {"held": held_view(row.held)}


@command(schedules)
def run(name: NameArgument, cli: Cli) -> None:
    """Enqueue the job of a schedule once, now. Its ticks stay as they are. Needs --app."""
    needed(cli.app, "the schedule")
    job_id = cli.ask(lambda app: app.schedules.run(name))
    cli.say({"name": name, "id": job_id}, f"{job_id} is queued")


@command(schedules)
def pause(
    name: NameArgument, cli: Cli, duration: ForOption = None, reason: ReasonOption = "", by: ByOption = None
) -> None:
    """Enqueue no jobs of a schedule until it is resumed, or for a time. Then its rule for missed ticks applies."""
    pause_scope(cli, "schedule", name, duration=duration, reason=reason, by=by)


@command(schedules)
def resume(name: NameArgument, cli: Cli, by: ByOption = None) -> None:
    """End the pause of a schedule."""
    resume_scope(cli, "schedule", name, by=by)


@command(schedules)
def forget(name: NameArgument, cli: Cli) -> None:
    """Delete a schedule that was removed from the code. One that is still declared starts again with its next tick."""
    cli.ask(lambda app: app.schedules.forget(name))
    cli.say({"name": name, "forgotten": True}, f"schedule {name} is forgotten")

"""`holdfast jobs stuck` and `reclaim`: attempts that run too long while their worker is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli
from holdfast.cli.filters import Where
from holdfast.cli.options import current_user
from holdfast.errors import UsageError
from holdfast.values.duration import format_duration

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.jobs.job import StuckJob

LongerOption = Annotated[
    str | None,
    typer.Option(
        "--longer-than", metavar="TIME", help="Instead of the `stuck_after` of each task, e.g. 30m."
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=500, help="Select at most this many.")]
IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[ID…]", help="Only these jobs. Default: all that are stuck.")
]


def stuck(cli: Cli, where: Where, longer_than: LongerOption = None, limit: LimitOption = 100) -> None:
    """List attempts that run too long, oldest first. Their workers are alive. Needs --app, whose tasks say how long is too long."""
    found = cli.ask(lambda app: _find(app, longer_than, limit=limit, **where))
    from holdfast.engine.stuck import stuck_view  # imported with the engine by now

    cli.table(
        {"jobs": [stuck_view(one) for one in found]},
        ["id", "task", "queue", "attempt", "longer than", "worker"],
        (
            (s.id, s.task, s.queue, f"{s.attempt}/{s.max_attempts}", format_duration(s.longer_than), s.worker)
            for s in found
        ),
        empty="No job is stuck.",
    )


def reclaim(
    *,
    ids: IdsArgument = None,
    cli: Cli,
    where: Where,
    longer_than: LongerOption = None,
    limit: LimitOption = 100,
) -> None:
    """Take stuck jobs from their workers. They fail with STUCK and are retried, or become dead letters. Needs --app."""

    async def move(app: Holdfast) -> tuple[int, int]:
        found = await _find(app, longer_than, limit=limit, ids=ids or None, **where)
        return len(found), await app.jobs.reclaim(found, by=current_user())

    found, done = cli.ask(move)
    cli.say({"found": found, "reclaimed": done}, f"{done} of {found} stuck jobs are reclaimed")


async def _find(app: Holdfast, longer_than: str | None, **filters: Any) -> list[StuckJob]:
    if not app.tasks:
        raise UsageError(
            "only the tasks of an app say when a job is stuck; name the app with --app pkg.module:name"
        )
    return await app.jobs.stuck(longer_than=longer_than, **filters)

"""`holdfast jobs stuck` and `reclaim`: attempts that run on for too long while their worker lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask
from holdfast.cli.filters import Where, filtered
from holdfast.cli.options import AppOption, JsonOption, UrlOption, current_user
from holdfast.cli.views import print_json
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.domain.job import StuckJob

LongerOption = Annotated[
    str | None,
    typer.Option("--longer-than", metavar="TIME", help="Instead of what each task says, e.g. 30m."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=500, help="At most this many.")]
IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[ID…]", help="Only these. Default: all that are stuck.")
]


@filtered("task", "owner")
def stuck(
    *,
    app: AppOption = None,
    url: UrlOption = None,
    where: Where,
    longer_than: LongerOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Attempts that run on for too long while their worker lives, oldest first. Needs --app, whose tasks say for how long."""
    found = ask(app, url, lambda app: _find(app, longer_than, limit=limit, **where))
    if as_json:
        from holdfast.engine.stuck import stuck_view

        print_json({"jobs": [stuck_view(one) for one in found]})
        return
    from holdfast.cli.tables import show_table
    from holdfast.domain.duration import format_duration

    show_table(
        ["id", "task", "queue", "attempt", "longer than", "worker"],
        [
            (s.id, s.task, s.queue, f"{s.attempt}/{s.max_attempts}", format_duration(s.longer_than), s.worker)
            for s in found
        ],
        empty="No job is stuck.",
    )


@filtered("task", "owner")
def reclaim(
    ids: IdsArgument = None,
    *,
    app: AppOption = None,
    url: UrlOption = None,
    where: Where,
    longer_than: LongerOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Take stuck jobs from their workers: they fail with STUCK and are retried, or become dead letters. Needs --app."""

    async def move(app: Holdfast) -> tuple[int, int]:
        found = await _find(app, longer_than, limit=limit, ids=ids or None, **where)
        return len(found), await app.reclaim(found, by=current_user())

    found, done = ask(app, url, move)
    if as_json:
        print_json({"found": found, "reclaimed": done})
    else:
        print(f"{done} of {found} stuck jobs are reclaimed")


async def _find(app: Holdfast, longer_than: str | None, **asked: Any) -> list[StuckJob]:
    if not app.tasks:
        raise UsageError(
            "which jobs are stuck is said by their tasks; name the app that has them: --app pkg.module:name"
        )
    return await app.stuck(longer_than=longer_than, **asked)

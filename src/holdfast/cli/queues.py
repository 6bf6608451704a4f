"""`holdfast queues`: how queues stand; pause and resume them, and whatever else can be paused."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AfterOption, AppOption, JsonOption, LimitOption, UrlOption
from holdfast.cli.pauses import ByOption, ForOption, ReasonOption, held_by, held_view
from holdfast.cli.pauses import pause as pause_scope
from holdfast.cli.pauses import resume as resume_scope
from holdfast.cli.views import print_json, view

queues = typer.Typer(
    help="How queues stand; pause and resume them, and tasks, lanes, dependencies and duties.",
    **(PLAIN | {"no_args_is_help": False}),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the queue, or of what --kind says.")]
KindOption = Annotated[str, typer.Option("--kind", help="queue, task, lane, dependency, schedule or duty.")]


@queues.callback(invoke_without_command=True)
def overview(
    context: typer.Context, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        list_(app, url, as_json=as_json)


@queues.command("list")
def list_(
    app: AppOption = None,
    url: UrlOption = None,
    limit: LimitOption = 100,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Queues that were ever used, by name: what waits in each, who serves it, whether it is paused."""
    found = ask(app, url, lambda app: app.queues(after=after, limit=limit + 1))
    shown, following = found[:limit], found[limit - 1].name if len(found) > limit else None
    if as_json:
        rows = [view(queue) | {"held": held_view(queue.held)} for queue in shown]
        print_json({"queues": rows, "next": following})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["queue", "waiting", "workers", "tasks", "held"],
        [(q.name, f"{q.waiting:,}", q.workers, ", ".join(q.tasks), held_by(q.held)) for q in shown],
        empty="No queue was used yet.",
    )
    if following:
        print(f"More: list --after {quote(following)}")


@queues.command()
def pause(
    name: NameArgument,
    app: AppOption = None,
    url: UrlOption = None,
    kind: KindOption = "queue",
    duration: ForOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start nothing more of it, until it is resumed or for a time. What runs goes on; no job is touched."""
    pause_scope(app, url, kind, name, duration=duration, reason=reason, by=by, as_json=as_json)


@queues.command()
def resume(
    name: NameArgument,
    app: AppOption = None,
    url: UrlOption = None,
    kind: KindOption = "queue",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a pause."""
    resume_scope(app, url, kind, name, by=by, as_json=as_json)

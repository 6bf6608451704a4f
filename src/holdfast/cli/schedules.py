"""`holdfast schedules`: which there are and when they tick; pause, resume and forget one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption
from holdfast.cli.pauses import ByOption, ForOption, ReasonOption, held_by, held_view
from holdfast.cli.pauses import pause as pause_scope
from holdfast.cli.pauses import resume as resume_scope
from holdfast.cli.views import print_json, say

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast

schedules = typer.Typer(
    help="Which schedules there are and when they tick; pause, resume and forget one.",
    **(PLAIN | {"no_args_is_help": False}),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the schedule.")]


@schedules.callback(invoke_without_command=True)
def overview(
    context: typer.Context, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        list_(app, url, as_json)


@schedules.command("list")
def list_(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Every schedule: those that a worker has seen to, and with --app those that it declares."""
    found = ask(app, url, _look)
    if as_json:
        print_json({"schedules": [one | {"paused": held_view(one["paused"])} for one in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["schedule", "task", "when", "zone", "last", "next", "paused"],
        [
            (s["name"], s["task"], s["when"], s["zone"], s["last"], s["next"], held_by(s["paused"]))
            for s in found
        ],
        empty="No schedules; with --app those of an app are shown that no worker has seen to yet.",
    )


async def _look(app: Holdfast) -> list[dict[str, Any]]:
    from holdfast.domain.lanes import ScopeKind
    from holdfast.domain.schedule import Cron, describe

    store = (await app.engine()).store
    ticks, now = {tick.name: tick for tick in await store.ticks()}, await store.now()
    paused = {h.scope.name: h for h in await store.holds() if h.scope.kind is ScopeKind.SCHEDULE}
    found = []
    for name in sorted(ticks.keys() | app.schedules):
        tick, declared = ticks.get(name), app.schedules.get(name)
        upcoming = tick.due if tick else declared.when.next_after(now) if declared else None
        when = declared and (
            declared.when.expression if isinstance(declared.when, Cron) else describe(declared.when)
        )
        found.append(
            {
                "name": name,
                "task": declared and declared.task,
                "when": when,
                "zone": declared.when.zone if declared and isinstance(declared.when, Cron) else None,
                "last": tick and tick.ticked,
                "next": upcoming,
                "paused": paused.get(name),
            }
        )
    return found


@schedules.command()
def pause(
    name: NameArgument,
    app: AppOption = None,
    url: UrlOption = None,
    duration: ForOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enqueue nothing more by it, until it is resumed or for a time; then its rule for missed ticks holds."""
    pause_scope(app, url, "schedule", name, duration=duration, reason=reason, by=by, as_json=as_json)


@schedules.command()
def resume(
    name: NameArgument,
    app: AppOption = None,
    url: UrlOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """End its pause."""
    resume_scope(app, url, "schedule", name, by=by, as_json=as_json)


@schedules.command()
def forget(
    name: NameArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Delete a schedule that was removed from the code. One that is still declared starts anew with its next tick."""
    ask(app, url, lambda app: app.forget_schedule(name))
    if as_json:
        print_json({"name": name, "forgotten": True})
    else:
        say(f"schedule {name} is forgotten")

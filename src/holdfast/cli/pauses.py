"""Pause and resume scopes, and show holds, for several commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli
from holdfast.cli.options import current_user
from holdfast.cli.times import ago
from holdfast.cli.views import view
from holdfast.errors import Conflict

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from datetime import datetime

    from holdfast.app import Holdfast
    from holdfast.jobs.lanes import Held

ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help='For how long, e.g. "10m", "1h30m".')
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; `holdfast explain` repeats it.")]
ByOption = Annotated[
    str | None, typer.Option("--by", help="The name that the event records. Default: your user name.")
]


def held_view(held: Held | None) -> dict[str, Any] | None:
    if held is None:
        return None
    return {"kind": held.scope.kind, "name": held.scope.name} | view(held, without=("scope",))


def held_by(held: Held | None) -> str | None:
    """Return a hold as text for one cell of a table."""
    if held is None:
        return None
    ends = "until resumed" if held.until is None else f"for {_left(held.until)}"
    why = f": {held.reason}" if held.reason else ""
    return f"{held.scope} by {held.by}, {ends}{why}"


def _left(until: datetime) -> str:
    return ago(until).removeprefix("in ")


def pause(cli: Cli, kind: str, name: str, *, duration: str | None, reason: str, by: str | None) -> None:
    async def hold(app: Holdfast) -> Held:
        await app.queues.pause(name, kind=kind, duration=duration, reason=reason, by=by or current_user())
        for held in await app.queues.holds():
            if (held.scope.kind, held.scope.name, held.cause) == (kind, name, "pause"):
                return held
        raise Conflict(f"{kind} {name} has been resumed again, or the pause was too short to be seen")

    held = cli.ask(hold)
    ends = "until it is resumed" if held.until is None else f"for {_left(held.until)}"
    cli.say(held_view(held), f"{kind} {name} is paused {ends}; running jobs continue")


def resume(cli: Cli, kind: str, name: str, *, by: str | None) -> None:
    ended = cli.ask(lambda app: app.queues.resume(name, kind=kind, by=by or current_user()))
    shown = {"kind": kind, "name": name, "resumed": ended}
    cli.say(shown, f"{kind} {name} is resumed" if ended else f"{kind} {name} was not paused")

"""Pausing and resuming, for every command that does it; and a hold as people and programs see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import current_user
from holdfast.cli.views import print_json, say
from holdfast.errors import Conflict

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from datetime import datetime

    from holdfast.app import Holdfast
    from holdfast.domain.lanes import Held

ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help='It ends by itself after "10m", "1h30m".')
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; people who ask why a job waits are told.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who is on record for it. Default: you.")]


def held_view(held: Held | None) -> dict[str, Any] | None:
    if held is None:
        return None
    return {
        "kind": held.scope.kind,
        "name": held.scope.name,
        "cause": held.cause,
        "reason": held.reason,
        "by": held.by,
        "at": held.at,
        "until": held.until,
    }


def held_by(held: Held | None) -> str | None:
    """In one cell of a table."""
    if held is None:
        return None
    ends = "until resumed" if held.until is None else f"for {_left(held.until)}"
    why = f": {held.reason}" if held.reason else ""
    return f"{held.scope} by {held.by}, {ends}{why}"


def _left(until: datetime) -> str:
    from holdfast.cli.tables import ago

    return ago(until).removeprefix("in ")


def pause(
    app: str | None,
    url: str | None,
    kind: str,
    name: str,
    *,
    duration: str | None,
    reason: str,
    by: str | None,
    as_json: bool,
) -> None:
    async def hold(app: Holdfast) -> Held:
        await app.pause(name, kind=kind, duration=duration, reason=reason, by=by or current_user())
        for held in await app.holds():
            if (held.scope.kind, held.scope.name, held.cause) == (kind, name, "pause"):
                return held
        raise Conflict(f"{kind} {name} has been resumed again, or the pause was too short to be seen")

    held = ask(app, url, hold)
    if as_json:
        print_json(held_view(held))
    else:
        ends = "until it is resumed" if held.until is None else f"for {_left(held.until)}"
        say(f"{kind} {name} is paused {ends}; what runs goes on")


def resume(app: str | None, url: str | None, kind: str, name: str, *, by: str | None, as_json: bool) -> None:
    ended = ask(app, url, lambda app: app.resume(name, kind=kind, by=by or current_user()))
    if as_json:
        print_json({"kind": kind, "name": name, "resumed": ended})
    else:
        say(f"{kind} {name} goes on" if ended else f"{kind} {name} was not paused")

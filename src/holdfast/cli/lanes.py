"""`holdfast lanes`: list lanes, what holds them and what limits them."""

from __future__ import annotations

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN, AfterOption, LimitOption
from holdfast.cli.pauses import held_by, held_view
from holdfast.cli.views import view

lanes = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@command(lanes)
def list_lanes(cli: Cli, limit: LimitOption = 100, after: AfterOption = None) -> None:
    """List lanes (queue/task@dependency#shard) by name: what waits in each, what holds it and what limits it."""
    found = cli.ask(lambda app: app.queues.lanes(after=after, limit=limit + 1))
    shown, following = found[:limit], found[limit - 1].label if len(found) > limit else None
    rows = [view(lane) | {"held": held_view(lane.held)} for lane in shown]
    cli.table(
        {"lanes": rows, "next": following},
        ["lane", "waiting", "breaker", "calls", "limit", "held by"],
        ((n.label, f"{n.waiting:,}", n.breaker, n.in_flight, n.limit, held_by(n.held)) for n in shown),
        empty="No lane was used yet.",
        more=following,
    )

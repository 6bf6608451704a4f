"""`holdfast lanes`: what waits, what holds it, what limits it."""

from __future__ import annotations

import typer

from holdfast.cli.holding import held_by, held_view
from holdfast.cli.opening import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption
from holdfast.cli.views import print_json, view

lanes = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@lanes.command()
def list_lanes(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Every lane (queue/task@dependency#shard): what waits in it, what holds it, what limits it."""
    found = ask(app, url, lambda app: app.lanes())
    if as_json:
        print_json({"lanes": [view(lane) | {"held": held_view(lane.held)} for lane in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["lane", "waiting", "breaker", "calls", "limit", "held by"],
        [(n.label, f"{n.waiting:,}", n.breaker, n.in_flight, n.limit, held_by(n.held)) for n in found],
        empty="No lane was used yet.",
    )

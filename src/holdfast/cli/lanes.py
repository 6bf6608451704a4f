"""`holdfast lanes`: what waits, what holds it, what limits it."""

from __future__ import annotations

from shlex import quote

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AfterOption, AppOption, JsonOption, LimitOption, UrlOption
from holdfast.cli.pauses import held_by, held_view
from holdfast.cli.views import print_json, view

lanes = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@lanes.command()
def list_lanes(
    app: AppOption = None,
    url: UrlOption = None,
    limit: LimitOption = 100,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lanes (queue/task@dependency#shard) by name: what waits in each, what holds it, what limits it."""
    found = ask(app, url, lambda app: app.lanes(after=after, limit=limit + 1))
    shown, following = found[:limit], found[limit - 1].label if len(found) > limit else None
    if as_json:
        rows = [view(lane) | {"held": held_view(lane.held)} for lane in shown]
        print_json({"lanes": rows, "next": following})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["lane", "waiting", "breaker", "calls", "limit", "held by"],
        [(n.label, f"{n.waiting:,}", n.breaker, n.in_flight, n.limit, held_by(n.held)) for n in shown],
        empty="No lane was used yet.",
    )
    if following:
        print(f"More: --after {quote(following)}")

"""`holdfast workers`: the worker processes that live."""

from __future__ import annotations

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption
from holdfast.cli.views import print_json, view

workers = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@workers.command()
def list_workers(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """The workers that live, oldest first."""
    found = ask(app, url, lambda app: app.workers())
    if as_json:
        print_json({"workers": [view(worker) for worker in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["worker", "started", "jobs", "lost unless heard of", "queues"],
        [
            (w.name, w.started_at, w.leases, w.expires_at, "all" if w.queues is None else ", ".join(w.queues))
            for w in found
        ],
        empty="No worker is running.",
    )

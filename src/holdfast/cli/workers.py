"""`holdfast workers`: list running worker processes."""

from __future__ import annotations

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN
from holdfast.cli.views import view

workers = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@command(workers)
def list_workers(cli: Cli) -> None:
    """List running workers, oldest first."""
    found = cli.ask(lambda app: app.queues.workers())
    cli.table(
        {"workers": [view(worker) for worker in found]},
        ["worker", "started", "jobs", "lost unless heard of", "queues"],
        (
            (w.name, w.started_at, w.leases, w.expires_at, "all" if w.queues is None else ", ".join(w.queues))
            for w in found
        ),
        empty="No worker is running.",
    )

"""`holdfast scheduler`: run maintenance without jobs, beside workers with `--no-maintenance`."""

from __future__ import annotations

import typer

from holdfast.cli.apps import run_until_stopped
from holdfast.cli.options import PLAIN, AppArgument

scheduler = typer.Typer(**PLAIN)


@scheduler.command()
def run_scheduler(app: AppArgument) -> int:
    """Run maintenance until SIGTERM or SIGINT: due jobs, schedules, lost leases, deadlines, retention. Any number may run."""
    return run_until_stopped(app, lambda app: app.run_maintenance(handle_signals=True))

"""`holdfast scheduler`: the duties without any job, for a house whose workers do not do them (`--no-maintenance`)."""

from __future__ import annotations

import asyncio

import typer

from holdfast.cli.apps import load_app, retry_until_available
from holdfast.cli.exit_codes import OK
from holdfast.cli.options import PLAIN, AppArgument

scheduler = typer.Typer(**PLAIN)


@scheduler.command()
def run_scheduler(app: AppArgument) -> int:
    """Let due jobs into line, tick schedules, reclaim what was lost, keep the house, until SIGTERM or SIGINT. Any number of
    them may run."""
    from holdfast import logs
    from holdfast.cli.supervisor import die_with_parent
    from holdfast.signals import with_deadline

    die_with_parent()
    found = load_app(app)
    logs.configure(keep=True)

    async def run() -> None:
        async with retry_until_available(found):
            await found.run_maintenance(handle_signals=True)

    with with_deadline():
        asyncio.run(run())
    return OK

"""`holdfast events`: print events, and follow new ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN
from holdfast.cli.views import encode, view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.jobs.job import Event

events = typer.Typer(**(PLAIN | {"no_args_is_help": False}))

AT_ONCE = 1000
LOOK_EVERY = 0.25


@command(events)
def print_events(
    cli: Cli,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then print new events as they happen.")
    ] = False,
    after: Annotated[
        int | None,
        typer.Option(
            "--after",
            min=0,
            help="Begin after this event. Default: the first event; with --follow the newest.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only events of this job.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Print at most this many.")] = None,
) -> None:
    """Print events, oldest first; with --json one object a line."""

    async def tell(app: Holdfast) -> None:
        if job is not None:
            await app.jobs.get(job)  # `UnknownJob`: a mistyped id must not look like a quiet job
        last = after if after is not None else await app.events.newest() if follow else 0
        left = limit
        while left is None or left > 0:
            page = await app.events.list(after=last, limit=min(AT_ONCE, left or AT_ONCE), job_id=job)
            for event in page:
                sys.stdout.write(_line(event, cli.as_json))
            sys.stdout.flush()
            if page:
                last = page[-1].id
                left = None if left is None else left - len(page)
            elif not follow:
                return
            else:
                await app.runtime.clock.sleep(LOOK_EVERY)

    cli.ask(tell)


def _line(event: Event, as_json: bool) -> str:
    if as_json:
        return encode(view(event)).decode() + "\n"
    from holdfast.cli.tables import clean

    more = clean(encode(event.meta).decode()) if event.meta else ""
    at = event.at.isoformat(timespec="milliseconds")
    return (
        f"{event.id:>12} {at} {event.kind:<12} {event.job_id} attempt {event.attempt} {more}".rstrip() + "\n"
    )

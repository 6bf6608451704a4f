"""`holdfast events`: print what happened, or follow it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption
from holdfast.cli.views import encode, view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.domain.job import Event

events = typer.Typer(**(PLAIN | {"no_args_is_help": False}))

AT_ONCE = 1000
LOOK_EVERY = 0.25


@events.command()
def print_events(
    app: AppOption = None,
    url: UrlOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens next.")] = False,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", min=0, help="From behind this event. Default: all; with --follow what is new."
        ),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Of this job.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many.")] = None,
    as_json: JsonOption = False,
) -> None:
    """What happened, oldest first; with --json one object a line."""

    async def tell(app: Holdfast) -> None:
        if job is not None:
            await app.job(job)  # `UnknownJob`: a mistyped id must not look like a quiet job
        engine = await app.engine()
        last = after if after is not None else await engine.store.newest_event() if follow else 0
        left = limit
        while left is None or left > 0:
            page = await app.events(after=last, limit=min(AT_ONCE, left or AT_ONCE), job_id=job)
            for event in page:
                sys.stdout.write(_line(event, as_json))
            sys.stdout.flush()
            if page:
                last = page[-1].id
                left = None if left is None else left - len(page)
            elif not follow:
                return
            else:
                await engine.clock.sleep(LOOK_EVERY)

    ask(app, url, tell)


def _line(event: Event, as_json: bool) -> str:
    if as_json:
        return encode(view(event)).decode() + "\n"
    from holdfast.cli.tables import clean

    more = clean(encode(event.meta).decode()) if event.meta else ""
    at = event.at.isoformat(timespec="milliseconds")
    return (
        f"{event.id:>12} {at} {event.kind:<12} {event.job_id} attempt {event.attempt} {more}".rstrip() + "\n"
    )

"""`holdfast jobs`: look at jobs; retry and cancel them; reclaim those that are stuck."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask
from holdfast.cli.filters import Where, filtered
from holdfast.cli.options import (
    PLAIN,
    AfterOption,
    AppOption,
    JsonOption,
    LimitOption,
    UrlOption,
    current_user,
)
from holdfast.cli.stuck import reclaim, stuck
from holdfast.cli.views import attempt_view, job_view, print_json, say, view
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.domain.job import Attempt, Event, JobRow

jobs = typer.Typer(help="Look at jobs; retry and cancel them; reclaim those that are stuck.", **PLAIN)
jobs.command()(stuck)
jobs.command("reclaim")(reclaim)

EVENTS_AT_ONCE = 1000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of jobs.")]


def read_arguments(text: str) -> dict[str, Any]:
    import json

    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--args is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError('--args is an object of all arguments by name, e.g. {"file": "a.pdf"}')
    return found


async def events_of(app: Holdfast, job_id: str) -> list[Event]:
    found: list[Event] = []
    after = 0
    while page := await app.events(after=after, limit=EVENTS_AT_ONCE, job_id=job_id):
        found += page
        after = page[-1].id
        if len(page) < EVENTS_AT_ONCE:
            break
    return found


@jobs.command("list")
@filtered(
    "state",
    "task",
    "queue",
    "owner",
    "tag",
    "key",
    "error_code",
    "created_after",
    "created_before",
    "internal",
)
def list_(
    *,
    app: AppOption = None,
    url: UrlOption = None,
    where: Where,
    limit: LimitOption = 50,
    after: AfterOption = None,
    events: Annotated[bool, typer.Option("--events", help="With each job's events (in JSON).")] = False,
    as_json: JsonOption = False,
) -> None:
    """Jobs, newest first."""

    async def look(app: Holdfast) -> tuple[list[tuple[JobRow, list[Event] | None]], str | None]:
        found, following = await _found(app, after, limit, where)
        return [(row, await events_of(app, row.id) if events else None) for row in found], following

    rows, following = ask(app, url, look)
    if as_json:
        print_json({"jobs": [job_view(row, told) for row, told in rows], "next": following})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["id", "task", "queue", "state", "attempt", "queued", "what"],
        [
            (r.id, r.task, r.queue, r.state, f"{r.attempt}/{r.max_attempts}", r.queued_at, _what(r))
            for r, _ in rows
        ],
        empty="No jobs.",
    )
    if following:
        print(f"More: --after {following}")


async def _found(
    app: Holdfast, after: str | None, limit: int, where: Where
) -> tuple[list[JobRow], str | None]:
    """A whole page, however many have to be looked at for it."""
    found: list[JobRow] = []
    while True:
        page = await app.jobs(after=after, limit=limit - len(found), **where)
        found, after = found + page.rows, page.next
        if after is None or len(found) == limit:
            return found, after


def _what(row: JobRow) -> str | None:
    """The one thing worth knowing about a job at a glance."""
    if row.error_code:
        return f"{row.error_code}: {row.error_message}"
    if row.leased_by:
        return f"at {row.leased_by}"
    if row.last_failure and row.finished_at is None:
        return f"was {row.last_failure.get('code')}, {_due(row.run_at)}"
    return _due(row.run_at) if row.finished_at is None and row.run_at > row.queued_at else None


def _due(moment: datetime) -> str:
    from holdfast.cli.tables import ago

    told = ago(moment)
    return f"next try {told}" if told.startswith("in ") else "due"


def show_tracebacks(attempts: Sequence[Attempt]) -> None:
    """Where the attempts failed, each place once."""
    from holdfast.cli.tables import heading, show_lines

    places: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.traceback is not None:
            places.setdefault(attempt.traceback, []).append(str(attempt.attempt))
    for traceback, numbers in places.items():
        heading(f"Traceback of attempt{'s' * (len(numbers) > 1)} {', '.join(numbers)}")
        show_lines(traceback.splitlines(), empty="")


@jobs.command()
def show(
    job_id: IdArgument,
    app: AppOption = None,
    url: UrlOption = None,
    logs: Annotated[bool, typer.Option("--logs", help="With what was logged in its attempts.")] = False,
    as_json: JsonOption = False,
) -> None:
    """One job: its row, attempts, tracebacks, artifacts, events and late results."""

    async def look(app: Holdfast) -> tuple[JobRow, list[Attempt], list[Event], list[Any], list[Any]]:
        row = await app.job(job_id)
        attempts, events = await app.attempts(job_id), await events_of(app, job_id)
        return row, attempts, events, await app.late_results(job_id), await app.artifacts(job_id)

    row, attempts, events, late, artifacts = ask(app, url, look)
    if as_json:
        shown = job_view(row, events)
        shown["attempts"] = [attempt_view(attempt) for attempt in attempts]
        shown["late_results"] = [view(result) for result in late]
        shown["artifacts"] = [view(artifact) for artifact in artifacts]
        print_json(shown)
        return
    from holdfast.cli.tables import heading, show_facts, show_lines, show_table, span

    show_facts(job_view(row))
    heading("Attempts")
    show_table(
        ["attempt", "started", "took", "outcome", "worker", "error"],
        [
            (
                a.attempt,
                a.started_at,
                span(a.duration.total_seconds()) if a.duration else None,
                a.outcome or "running",
                a.worker,
                f"{a.failure.code}: {a.failure.detail or a.failure.message}" if a.failure else None,
            )
            for a in attempts
        ],
        empty="None yet.",
    )
    show_tracebacks(attempts)
    if logs:
        for a in attempts:
            heading(f"Logs of attempt {a.attempt}")
            show_lines(a.logs, empty="None were kept.")
    if artifacts:
        heading("Artifacts")
        show_table(
            ["reference", "name", "bytes", "at"],
            [(a.reference, a.name or "(the result)", f"{a.bytes:,}", a.at) for a in artifacts],
            empty="",
        )
    heading("Events")
    show_table(
        ["at", "event", "attempt", "more"],
        [(e.at.isoformat(timespec="milliseconds"), e.kind, e.attempt, e.meta or None) for e in events],
        empty="None.",
    )
    if late:
        heading("Late results (without effect)")
        show_table(
            ["at", "reason", "outcome", "result"],
            [(r.at, r.reason, r.outcome, r.artifact or r.result) for r in late],
            empty="",
        )


@jobs.command()
def retry(
    ids: IdsArgument,
    app: AppOption = None,
    url: UrlOption = None,
    from_step: Annotated[
        str | None, typer.Option("--from-step", help="Forget this step and those after it.")
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            metavar="JSON",
            help="Call it with these arguments instead, all of them by name; needs --app.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run failed, cancelled, waiting or stuck jobs now, as they were called or with other arguments."""
    edited = None if args is None else read_arguments(args)

    async def move(app: Holdfast) -> None:
        for job_id in ids:
            place = await app.retry(job_id, by=current_user(), from_step=from_step, args=edited)
            if as_json:
                print_json({"id": job_id, "state": "queued", "place": place})
            else:
                say(f"{job_id} is queued, number {place} in its line")

    ask(app, url, move)


@jobs.command()
def cancel(
    ids: IdsArgument,
    app: AppOption = None,
    url: UrlOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the event.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Cancel queued or processing jobs."""

    async def move(app: Holdfast) -> None:
        for job_id in ids:
            await app.cancel(job_id, by=current_user(), reason=reason)
            if as_json:
                print_json({"id": job_id, "state": "cancelled"})
            else:
                say(f"{job_id} is cancelled")

    ask(app, url, move)


@jobs.command()
def counts(
    app: AppOption = None,
    url: UrlOption = None,
    internal: Annotated[bool, typer.Option("--internal", help="With the engine's own jobs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """How many jobs are in each state."""
    found = ask(app, url, lambda app: app.counts(internal=internal))
    if as_json:
        print_json(found)
        return
    from holdfast.cli.tables import show_table

    show_table(["state", "jobs"], [(state, f"{count:,}") for state, count in found.items()], empty="No jobs.")

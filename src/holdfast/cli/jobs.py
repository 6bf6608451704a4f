"""`holdfast jobs`: list, show, retry and cancel jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.arguments import read_arguments
from holdfast.cli.bulk import PACED, AllOption, DryRunOption, RateOption, begin, read_paced, selects_many
from holdfast.cli.command import Cli, command
from holdfast.cli.filters import FILTERS, Where, find_jobs
from holdfast.cli.options import PLAIN, AfterOption, LimitOption, current_user
from holdfast.cli.stuck import reclaim, stuck
from holdfast.cli.times import ago, span
from holdfast.cli.views import attempt_view, job_view, print_json, view
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.jobs.job import Attempt, Event, JobRow

jobs = typer.Typer(help="List, retry and cancel jobs.", **PLAIN)

EVENTS_AT_ONCE = 1000

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids of jobs.")]
#: The filters of a job list, and of the commands that change all jobs that match.
OF_JOBS = [name for name in FILTERS if name not in ("code", "fingerprint")]


async def events_of(app: Holdfast, job_id: str) -> list[Event]:
    found: list[Event] = []
    after = 0
    while page := await app.events.list(after=after, limit=EVENTS_AT_ONCE, job_id=job_id):
        found += page
        after = page[-1].id
        if len(page) < EVENTS_AT_ONCE:
            break
    return found


@command(jobs, "list", filters=OF_JOBS)
def list_(
    cli: Cli,
    where: Where,
    limit: LimitOption = 50,
    after: AfterOption = None,
    events: Annotated[bool, typer.Option("--events", help="Add each job's events (in JSON).")] = False,
) -> None:
    """List jobs, newest first."""

    async def look(app: Holdfast) -> tuple[list[tuple[JobRow, list[Event] | None]], str | None]:
        found, following = await find_jobs(app, after, limit, where)
        return [(row, await events_of(app, row.id) if events else None) for row in found], following

    rows, following = cli.ask(look)
    cli.table(
        {"jobs": [job_view(row, events_of_row) for row, events_of_row in rows], "next": following},
        ["id", "task", "queue", "state", "attempt", "queued", "what"],
        (
            (r.id, r.task, r.queue, r.state, f"{r.attempt}/{r.max_attempts}", r.queued_at, _what(r))
            for r, _ in rows
        ),
        empty="No jobs.",
        more=following,
    )


def _what(row: JobRow) -> str | None:
    """Return the most important fact about a job for one cell of a table."""
    if row.error_code:
        return f"{row.error_code}: {row.error_message}"
    if row.leased_by:
        progress = row.progress or {}
        parts = [
            f"{progress['percent']:g} %" if progress else "",
            progress.get("message"),
            f"at {row.leased_by}",
        ]
        return ", ".join(part for part in parts if part)
    if row.last_failure and row.finished_at is None:
        return f"was {row.last_failure.get('code')}, {_due(row.run_at)}"
    return _due(row.run_at) if row.finished_at is None and row.run_at > row.queued_at else None


def _due(moment: datetime) -> str:
    when = ago(moment)
    return f"next attempt {when}" if when.startswith("in ") else "due"


def show_tracebacks(attempts: Sequence[Attempt]) -> None:
    """Print the tracebacks of attempts, each different one once."""
    from holdfast.cli.tables import heading, show_lines

    places: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.traceback is not None:
            places.setdefault(attempt.traceback, []).append(str(attempt.attempt))
    for traceback, numbers in places.items():
        heading(f"Traceback of attempt{'s' * (len(numbers) > 1)} {', '.join(numbers)}")
        show_lines(traceback.splitlines(), empty="")


@command(jobs)
def show(
    job_id: IdArgument,
    cli: Cli,
    logs: Annotated[bool, typer.Option("--logs", help="Add what its attempts logged.")] = False,
) -> None:
    """Show one job. This prints its fields, attempts, tracebacks, artifacts, events and late results."""

    async def look(app: Holdfast) -> tuple[JobRow, list[Attempt], list[Event], list[Any], list[Any]]:
        row = await app.jobs.get(job_id)
        attempts, events = await app.jobs.attempts(job_id), await events_of(app, job_id)
        return row, attempts, events, await app.jobs.late_results(job_id), await app.jobs.artifacts(job_id)

    row, attempts, events, late, artifacts = cli.ask(look)
    if cli.as_json:
        shown = job_view(row, events)
        shown["attempts"] = [attempt_view(attempt) for attempt in attempts]
        shown["late_results"] = [view(result) for result in late]
        shown["artifacts"] = [view(artifact) for artifact in artifacts]
        print_json(shown)
        return
    from holdfast.cli.tables import heading, show_facts, show_lines, show_table

    show_facts(job_view(row))
    heading("Attempts")
    show_table(
        ["attempt", "started", "took", "outcome", "cost", "worker", "error"],
        [
            (
                a.attempt,
                a.started_at,
                span(a.duration.total_seconds()) if a.duration else None,
                a.outcome or "running",
                None if a.cost is None else f"{a.cost:g}",
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


@command(jobs, filters=OF_JOBS, options=PACED)
def retry(
    *,
    ids: IdsArgument = None,
    cli: Cli,
    where: Where,
    everything: AllOption = False,
    rate: RateOption = None,
    from_step: Annotated[
        str | None, typer.Option("--from-step", help="Run this step and those after it again.")
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            metavar="JSON",
            help="Use these arguments instead: an object with all of them; needs --app.",
        ),
    ] = None,
    given: dict[str, Any],
    dry_run: DryRunOption = False,
) -> None:
    """Run failed, cancelled, waiting or stuck jobs now. Name them by id, or by filters.

    Without --state, the jobs that match are the failed ones.
    """
    edited = None if args is None else read_arguments(args)
    paced = read_paced(given)
    if selects_many(where, ids, everything, dry_run, rate, paced):
        if edited is not None or from_step is not None:
            raise UsageError("--args and --from-step are for jobs named by their ids")
        begin(cli, "retry", where, ids, rate=rate, dry_run=dry_run, **paced)
        return

    async def move(app: Holdfast) -> None:
        for job_id in ids or ():
            place = await app.jobs.retry(job_id, by=current_user(), from_step=from_step, args=edited)
            shown = {"id": job_id, "state": "queued", "place": place}
            cli.say(shown, f"{job_id} is queued at position {place}")

    cli.ask(move)


@command(jobs, filters=OF_JOBS)
def cancel(
    *,
    ids: IdsArgument = None,
    cli: Cli,
    where: Where,
    everything: AllOption = False,
    rate: RateOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; the event records it.")] = "",
    dry_run: DryRunOption = False,
) -> None:
    """Cancel queued or processing jobs. Name them by id, or by filters."""
    if selects_many(where, ids, everything, dry_run, rate):
        begin(cli, "cancel", where, ids, rate=rate, reason=reason, dry_run=dry_run)
        return

    async def move(app: Holdfast) -> None:
        for job_id in ids or ():
            await app.jobs.cancel(job_id, by=current_user(), reason=reason)
            cli.say({"id": job_id, "state": "cancelled"}, f"{job_id} is cancelled")

    cli.ask(move)


@command(jobs)
def counts(
    cli: Cli,
    internal: Annotated[bool, typer.Option("--internal", help="Include the engine's own jobs.")] = False,
) -> None:
    """Count the jobs in each state."""
    found = cli.ask(lambda app: app.jobs.counts(internal=internal))
    rows = ((state, f"{count:,}") for state, count in found.items())
    cli.table(found, ["state", "jobs"], rows, empty="No jobs.")


command(jobs, filters=("task", "owner"))(stuck)
command(jobs, filters=("task", "owner"))(reclaim)

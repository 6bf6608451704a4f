"""`holdfast dead`: list, export, redrive and discard dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.bulk import PACED, begin, read_paced
from holdfast.cli.command import Cli, command
from holdfast.cli.exit_codes import NothingFound
from holdfast.cli.filters import Where
from holdfast.cli.options import PLAIN, AfterOption, LimitOption, current_user
from holdfast.cli.progress import progress_bar
from holdfast.cli.views import print_line, view
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.jobs.job import Attempt, DeadLetter

dead = typer.Typer(help="List, export, redrive and discard dead letters.", **PLAIN)

IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids of jobs.")]
AllOption = Annotated[bool, typer.Option("--all", help="Select all of them.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count them, change nothing.")]
EVERY_GROUP = 1_000_000
EXPORTED_AT_ONCE = 100

BY_GROUP = ("task", "queue", "code", "owner", "internal")
BY_CAUSE = ("task", "queue", "code", "fingerprint", "owner", "internal")


def _selected(where: Where, ids: list[str] | None, everything: bool) -> Where:
    """Return the filter of a command that changes dead letters. Raises `UsageError` when it selects none."""
    if not where.keys() - {"internal"} and not ids and not everything:
        raise UsageError(
            "say which dead letters: ids, --task, --queue, --code, --fingerprint, --owner or --all"
        )
    return {**where, "ids": ids} if ids else where


async def _count(app: Holdfast, where: Where, ids: list[str] | None) -> int:
    """Return how many dead letters match. Raises `NothingFound` when *ids* are given and none does."""
    matching = sum(group.count for group in await app.dead_letters.groups(limit=EVERY_GROUP, **where))
    if ids and not matching:
        raise NothingFound(f"no dead letter has the id {', '.join(ids)}")
    return matching


@command(dead, "list", filters=BY_CAUSE)
def list_(cli: Cli, where: Where, limit: LimitOption = 50, after: AfterOption = None) -> None:
    """List dead letters, oldest job first."""
    found = cli.ask(lambda app: app.dead_letters.list(after=after, limit=limit + 1, **where))
    letters, following = found[:limit], found[limit - 1].id if len(found) > limit else None
    cli.table(
        {"dead_letters": [view(letter) for letter in letters], "next": following},
        ["id", "task", "queue", "code", "attempts", "died", "message"],
        ((x.id, x.task, x.queue, x.code, x.attempts, x.at, x.detail or x.message) for x in letters),
        empty="No dead letters.",
        more=following,
    )


@command(dead, filters=BY_GROUP)
def groups(cli: Cli, where: Where, limit: LimitOption = 50) -> None:
    """List the causes of dead letters, most frequent first."""
    found = cli.ask(lambda app: app.dead_letters.groups(limit=limit, **where))
    cli.table(
        {"groups": [view(group) for group in found]},
        ["fingerprint", "jobs", "task", "code", "first", "last", "message"],
        ((g.fingerprint, f"{g.count:,}", g.task, g.code, g.first_at, g.last_at, g.message) for g in found),
        empty="No dead letters.",
    )


@command(dead)
def show(job_id: Annotated[str, typer.Argument(metavar="ID")], cli: Cli) -> None:
    """Show one dead letter, with the traceback of its last attempt."""

    async def look(app: Holdfast) -> tuple[DeadLetter, list[Attempt]]:
        found = await app.dead_letters.list(ids=[job_id])
        if not found:
            raise NothingFound(
                f"no dead letter has the id {job_id}; `holdfast dead list` shows the existing ones"
            )
        return found[0], (await app.jobs.attempts(job_id))[-1:]

    letter, last = cli.ask(look)
    traceback = {"traceback": last[0].traceback if last else None}
    cli.facts(view(letter) | (traceback if cli.as_json else {}))
    if not cli.as_json:
        from holdfast.cli.jobs import show_tracebacks

        show_tracebacks(last)


@command(dead, filters=BY_CAUSE, has_json=False)
def export(
    *,
    ids: IdsArgument = None,
    cli: Cli,
    where: Where,
    tracebacks: Annotated[
        bool, typer.Option("--tracebacks", help="Add the traceback of each job's last attempt.")
    ] = False,
) -> None:
    """Print dead letters with their arguments as lines of JSON. Without a filter, print all of them."""
    chosen = {**where, "ids": ids} if ids else where

    async def export(app: Holdfast) -> None:
        async for letter in _every(app, chosen):
            shown = view(letter)
            if tracebacks:
                last = (await app.jobs.attempts(letter.id))[-1:]
                shown["traceback"] = last[0].traceback if last else None
            print_line(shown)

    cli.ask(export)


async def _every(app: Holdfast, where: Where) -> AsyncIterator[DeadLetter]:
    after: str | None = None
    while letters := await app.dead_letters.list(after=after, limit=EXPORTED_AT_ONCE, **where):
        for letter in letters:
            yield letter
        after = letters[-1].id


@command(dead, filters=BY_CAUSE, options=PACED)
def redrive(
    *,
    ids: IdsArgument = None,
    cli: Cli,
    where: Where,
    everything: AllOption = False,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Redrive at most this many a second.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Redrive at most this many.")] = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", help="Redrive them into this queue.")] = None,
    given: dict[str, Any],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, change nothing.")
    ] = False,
) -> None:
    """Queue the jobs of dead letters again.

    With a canary, a ramp, a bound on failures or a patch, workers carry it out.
    """
    where, paced = _selected(where, ids, everything), read_paced(given)
    if paced or dry_run:
        if limit is not None:
            raise UsageError("--limit is for a redrive that this command carries out itself; leave it out")
        begin(cli, "redrive", where, ids, rate=rate, to_queue=to_queue, dry_run=dry_run, **paced)
        return

    async def move(app: Holdfast) -> tuple[int, int]:
        matching = await _count(app, where, ids)
        chosen = matching if limit is None else min(matching, limit)
        with progress_bar("redriving", chosen) as progress:
            done = await app.dead_letters.redrive(
                by=current_user(), to_queue=to_queue, rate=rate, limit=limit, progress=progress, **where
            )
        return chosen, done

    chosen, done = cli.ask(move)
    line = f"{done:,} redriven"
    if done < chosen:
        line += f"; {chosen - done:,} were refused: a job with the same dedupe key is queued, or they have changed"
    cli.say({"matching": chosen, "redriven": done}, line)


@command(dead, filters=BY_CAUSE)
def discard(
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; the event records it.")],
    ids: IdsArgument = None,
    cli: Cli,
    where: Where,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete dead letters; their jobs stay failed."""
    where = _selected(where, ids, everything)

    async def move(app: Holdfast) -> tuple[int, int]:
        matching = await _count(app, where, ids)
        return matching, 0 if dry_run else await app.dead_letters.discard(
            reason=reason, by=current_user(), **where
        )

    matching, done = cli.ask(move)
    cli.say(
        {"matching": matching, "discarded": done, "dry_run": dry_run},
        f"{matching:,} would be discarded; nothing was changed" if dry_run else f"{done:,} discarded",
    )

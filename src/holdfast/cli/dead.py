"""`holdfast dead`: look at dead letters; redrive and discard them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.apps import ask
from holdfast.cli.exit_codes import NothingFound
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
from holdfast.cli.progress import progress_bar
from holdfast.cli.views import print_json, view
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.domain.job import Attempt, DeadLetter, DeadLetterGroup

dead = typer.Typer(help="Look at dead letters; redrive and discard them.", **PLAIN)

IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids of jobs.")]
AllOption = Annotated[bool, typer.Option("--all", help="All that there are.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say how many.")]
EVERY_GROUP = 1_000_000

by_filter = filtered("task", "queue", "code", "fingerprint", "owner", "internal")


def _meant(where: Where, ids: list[str] | None, everything: bool) -> Where:
    """A move over dead letters names them: by id, by filter, or all by saying so."""
    if not where.keys() - {"internal"} and not ids and not everything:
        raise UsageError(
            "say which dead letters: ids, --task, --queue, --code, --fingerprint, --owner or --all"
        )
    return {**where, "ids": ids} if ids else where


async def _count(app: Holdfast, where: Where) -> int:
    return sum(group.count for group in await app.dead_letter_groups(limit=EVERY_GROUP, **where))


@dead.command("list")
@by_filter
def list_(
    *,
    app: AppOption = None,
    url: UrlOption = None,
    where: Where,
    limit: LimitOption = 50,
    after: AfterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Dead letters, oldest job first."""

    async def look(app: Holdfast) -> list[DeadLetter]:
        return await app.dead_letters(after=after, limit=limit + 1, **where)

    found = ask(app, url, look)
    letters, following = found[:limit], found[limit - 1].id if len(found) > limit else None
    if as_json:
        print_json({"dead_letters": [view(letter) for letter in letters], "next": following})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["id", "task", "queue", "code", "attempts", "buried", "message"],
        [(x.id, x.task, x.queue, x.code, x.attempts, x.at, x.detail or x.message) for x in letters],
        empty="No dead letters.",
    )
    if following:
        print(f"More: --after {following}")


@dead.command()
@filtered("task", "queue", "code", "owner", "internal")
def groups(
    *,
    app: AppOption = None,
    url: UrlOption = None,
    where: Where,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """Dead letters by cause, the most frequent first."""

    async def look(app: Holdfast) -> list[DeadLetterGroup]:
        return await app.dead_letter_groups(limit=limit, **where)

    found = ask(app, url, look)
    if as_json:
        print_json({"groups": [view(group) for group in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["fingerprint", "jobs", "task", "code", "first", "last", "message"],
        [(g.fingerprint, f"{g.count:,}", g.task, g.code, g.first_at, g.last_at, g.message) for g in found],
        empty="No dead letters.",
    )


@dead.command()
def show(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    app: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """One dead letter, with the traceback of its last attempt."""

    async def look(app: Holdfast) -> tuple[DeadLetter, list[Attempt]]:
        found = await app.dead_letters(ids=[job_id])
        if not found:
            raise NothingFound(
                f"no dead letter has the id {job_id}; `holdfast dead list` shows those there are"
            )
        return found[0], (await app.attempts(job_id))[-1:]

    letter, last = ask(app, url, look)
    if as_json:
        print_json(view(letter) | {"traceback": last[0].traceback if last else None})
        return
    from holdfast.cli.jobs import show_tracebacks
    from holdfast.cli.tables import show_facts

    show_facts(view(letter))
    show_tracebacks(last)


@dead.command()
@by_filter
def redrive(
    *,
    ids: IdsArgument = None,
    app: AppOption = None,
    url: UrlOption = None,
    where: Where,
    everything: AllOption = False,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="At most this many a second.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many.")] = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", help="Into this queue instead.")] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Redrive dead letters."""
    where = _meant(where, ids, everything)

    async def move(app: Holdfast) -> tuple[int, int]:
        matching = await _count(app, where)
        if ids and not matching:
            raise NothingFound(f"no dead letter has the id {', '.join(ids)}")
        chosen = matching if limit is None else min(matching, limit)
        if dry_run:
            return chosen, 0
        with progress_bar("redriving", chosen) as progress:
            done = await app.redrive(
                by=current_user(), to_queue=to_queue, rate=rate, limit=limit, progress=progress, **where
            )
        return chosen, done

    chosen, done = ask(app, url, move)
    if as_json:
        print_json({"matching": chosen, "redriven": done, "dry_run": dry_run})
    elif dry_run:
        print(f"{chosen:,} would be redriven; nothing was changed")
    else:
        left = f"; {chosen - done:,} stay, a twin of theirs is queued or they moved" if done < chosen else ""
        print(f"{done:,} redriven{left}")


@dead.command()
@by_filter
def discard(
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the event.")],
    ids: IdsArgument = None,
    app: AppOption = None,
    url: UrlOption = None,
    where: Where,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Discard dead letters; their jobs stay failed."""
    where = _meant(where, ids, everything)

    async def move(app: Holdfast) -> tuple[int, int]:
        matching = await _count(app, where)
        if ids and not matching:
            raise NothingFound(f"no dead letter has the id {', '.join(ids)}")
        return matching, 0 if dry_run else await app.discard(reason=reason, by=current_user(), **where)

    matching, done = ask(app, url, move)
    if as_json:
        print_json({"matching": matching, "discarded": done, "dry_run": dry_run})
    else:
        print(f"{matching:,} would be discarded; nothing was changed" if dry_run else f"{done:,} discarded")

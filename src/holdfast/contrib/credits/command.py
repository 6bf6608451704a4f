"""`holdfast credits`: accounts, what they have, and the ledger of how it came to be."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.cli.apps import ask
from holdfast.cli.exit_codes import OK, PROBLEMS
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption, current_user
from holdfast.cli.views import print_json, say

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from collections.abc import Awaitable, Callable

    from holdfast import Holdfast
    from holdfast.contrib.credits import Account, Credits, Grant, LedgerEntry

T = TypeVar("T")

credits = typer.Typer(  # noqa: A001 - its name on the command line
    help="Grant credits; show and correct accounts; check the ledger.", **PLAIN
)

AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="E.g. user:7 or org:acme.")]
AmountArgument = Annotated[int, typer.Argument(metavar="CREDITS", help="How many.")]


def _ask(app: str | None, url: str | None, verb: Callable[[Credits], Awaitable[T]]) -> T:
    """Call *verb* with the credits of the app or of the database, and return its answer."""
    from holdfast.contrib.credits import Credits

    async def run(known: Holdfast) -> T:
        return await verb(Credits.of(known))

    return ask(app, url, run)


def _view(value: Account | LedgerEntry | Grant) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _show(account: Account, as_json: bool) -> None:
    if as_json:
        print_json(_view(account))
        return
    from holdfast.cli.tables import heading, show_facts, show_table

    show_facts({name: value for name, value in _view(account).items() if name != "grants"})
    heading("What is left of grants, in the order it is spent")
    show_table(
        ["grant", "source", "left", "of", "expires", "note"],
        [(g.id, g.source, g.remaining, g.amount, g.expires_at, g.note) for g in account.grants],
        empty="Nothing.",
    )


@credits.command()
def grant(
    account: AccountArgument,
    amount: AmountArgument,
    app: AppOption = None,
    url: UrlOption = None,
    source: Annotated[str, typer.Option("--source", help="Where they come from.")] = "grant",
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DURATION", help="They expire after this time, e.g. 90d."),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Kept in the ledger.")] = "",
    grant_id: Annotated[
        str | None, typer.Option("--id", help="Grants with the same id are given once.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Give credits to an account, which is made if it does not exist."""
    given = _ask(
        app,
        url,
        lambda found: found.grant(
            account, amount, source=source, expires=expires, note=note, by=current_user(), id=grant_id
        ),
    )
    if as_json:
        print_json(_view(given))
        return
    ends = "" if given.expires_at is None else f" until {given.expires_at:%Y-%m-%d %H:%M} UTC"
    say(f"{given.account} was given {given.amount} credits{ends}: grant {given.id}")


@credits.command()
def adjust(
    account: AccountArgument,
    amount: Annotated[
        int,
        typer.Option(
            "--credits",
            metavar="NUMBER",
            help="How many credits to add; negative to remove some.",
            show_default=False,
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the ledger.", show_default=False)],
    app: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Correct an account by hand; never below zero."""
    _show(
        _ask(app, url, lambda found: found.adjust(account, amount, reason=reason, by=current_user())),
        as_json,
    )


@credits.command("open")
def open_(
    account: AccountArgument,
    app: AppOption = None,
    url: UrlOption = None,
    paid_by: Annotated[
        str | None,
        typer.Option("--paid-by", metavar="ACCOUNT", help="Who pays for it; its own name: itself."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an account, or set who pays for it."""
    _show(_ask(app, url, lambda found: found.open(account, paid_by=paid_by)), as_json)


@credits.command()
def accounts(
    app: AppOption = None,
    url: UrlOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 50,
    after: Annotated[str, typer.Option("--after", help="The last name of the page before.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List accounts by name."""
    found = _ask(app, url, lambda found: found.accounts(after=after, limit=limit))
    following = found[-1].id if len(found) == limit else None
    if as_json:
        names = ("id", "paid_by", "available", "reserved", "created_at")
        rows = [{name: getattr(account, name) for name in names} for account in found]
        print_json({"accounts": rows, "next": following})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["account", "available", "reserved", "paid by", "created"],
        [(a.id, a.available, a.reserved, a.paid_by, a.created_at) for a in found],
        empty="No accounts; `holdfast credits grant` makes one.",
    )
    if following is not None:
        print(f"More: --after {following}")


@credits.command()
def show(
    account: AccountArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Show one account. This prints what it has, what is reserved, spent and expired, and its grants."""
    _show(_ask(app, url, lambda found: found.account(account)), as_json)


@credits.command()
def ledger(
    account: Annotated[str | None, typer.Argument(metavar="[ACCOUNT]", help="Only of this account.")] = None,
    app: AppOption = None,
    url: UrlOption = None,
    job_id: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only of this job.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 50,
    before: Annotated[int | None, typer.Option("--before", help="From before this number on.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List entries, newest first. The entries of one transaction sum to zero."""
    found = _ask(app, url, lambda found: found.ledger(account, job_id=job_id, before=before, limit=limit))
    following = found[-1].number if len(found) == limit else None
    if as_json:
        print_json({"entries": [_view(entry) for entry in found], "next": following})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["number", "at", "account", "bucket", "credits", "reason", "job", "by", "note"],
        [
            (e.number, e.at, e.account, e.bucket, f"{e.amount:+d}", e.reason, e.job_id, e.by, e.note)
            for e in found
        ],
        empty="No entries.",
    )
    if following is not None:
        print(f"More: --before {following}")


@credits.command()
def check(
    app: AppOption = None,
    url: UrlOption = None,
    settle: Annotated[
        bool, typer.Option("--settle", help="Settle what is still reserved for jobs that have ended.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Print what does not balance. The exit code is 1 if anything does not."""

    async def look(found: Credits) -> tuple[int, list[str]]:
        settled = await found.reconcile() if settle else 0
        return settled, await found.check()

    settled, problems = _ask(app, url, look)
    if as_json:
        print_json({"problems": problems, "settled": settled})
    else:
        from holdfast.cli.tables import show_lines

        if settled:
            print(f"Settled for {settled} jobs that had ended.")
        show_lines(problems, empty="The ledger balances.")
    return PROBLEMS if problems else OK

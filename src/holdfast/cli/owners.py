"""`holdfast owners`: show the limits of owners and what they have used of their quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli, command, list_by_default
from holdfast.cli.options import PLAIN
from holdfast.cli.views import view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.engine.owners import OwnerRow, PeriodUse

owners = typer.Typer(
    help="Show the limits of owners and what they have used of their quotas. The policy file sets both.",
    **(PLAIN | {"no_args_is_help": False}),
)


@command(owners, "list")
def list_(cli: Cli) -> None:
    """List the owners that the policy file names."""
    found = cli.ask(lambda app: app.queues.owners())
    cli.table(
        {"owners": [_view(row) for row in found]},
        list(_facts(found[0])) if found else [],
        (list(_facts(row).values()) for row in found),
        empty="The policy file names no owner.",
    )


list_by_default(owners, list_)


@command(owners)
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The owner, e.g. user:7 or acme/ann.")], cli: Cli
) -> None:
    """Show one owner. An owner that the policy file does not name has the default quota."""
    row = cli.ask(lambda app: app.queues.owner(name))
    cli.facts(_view(row) if cli.as_json else _facts(row))


def _view(row: OwnerRow) -> dict[str, Any]:
    return view(row) | {"rate": None if row.rate is None else str(row.rate)}


def _facts(row: OwnerRow) -> dict[str, Any]:
    return {
        "owner": row.owner,
        "weight": f"{row.weight:g}",
        "rate": row.rate,
        "jobs today": _use(row.jobs.day),
        "jobs this month": _use(row.jobs.month),
        "cost today": _use(row.cost.day),
        "cost this month": _use(row.cost.month),
        "manual retries today": _use(row.manual_retries.day),
        "manual retries this month": _use(row.manual_retries.month),
    }


def _use(period: PeriodUse) -> str | None:
    return None if period.limit is None else f"{period.used:g} of {period.limit:g}"

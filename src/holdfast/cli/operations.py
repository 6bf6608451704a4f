"""`holdfast operations`: list, show and cancel operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.bulk import operation_view
from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN, LimitOption, current_user

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.engine.operation import Operation

operations = typer.Typer(help="List, show and cancel work on many jobs.", **PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The operation's id.")]


@command(operations, "list")
def list_(cli: Cli, limit: LimitOption = 50) -> None:
    """List operations, newest first. They are deleted 30 days after their end."""
    found = cli.ask(lambda app: app.operations.list(limit=limit))
    cli.table(
        {"operations": [operation_view(operation) for operation in found]},
        ["id", "action", "progress", "done", "begun", "by", "filter"],
        (
            (o.id, o.action, o.phase or o.progress, _so_far(o), o.created_at, o.by, o.filter or "all")
            for o in found
        ),
        empty="No operations.",
    )


def _so_far(operation: Operation) -> str:
    refused = f", {operation.refused:,} refused" if operation.refused else ""
    of = "" if operation.action == "replay" else f" of {operation.matched:,}"
    failed = f", {operation.failed_again:,} failed again" if operation.failed_again else ""
    return f"{operation.done:,}{of}{refused}{failed}"


@command(operations)
def show(operation_id: IdArgument, cli: Cli) -> None:
    """Show one operation and its progress."""
    cli.facts(operation_view(cli.ask(lambda app: app.operations.get(operation_id))))


@command(operations)
def cancel(operation_id: IdArgument, cli: Cli) -> None:
    """Stop an operation. What it has done stays done."""
    found = cli.ask(lambda app: app.operations.cancel(operation_id, by=current_user()))
    cli.say(operation_view(found), f"operation {found.id} is {found.progress}: {_so_far(found)}")

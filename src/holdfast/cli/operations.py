"""`holdfast operations`: work on everything that matches a filter, as it was begun by the HTTP API or by `app.operate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, LimitOption, UrlOption
from holdfast.cli.views import print_json, say, view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.domain.operation import Operation

operations = typer.Typer(help="Work on many jobs at once: how it stands; cancel it.", **PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the operation.")]


@operations.command("list")
def list_(
    app: AppOption = None, url: UrlOption = None, limit: LimitOption = 50, as_json: JsonOption = False
) -> None:
    """Operations, newest first; what ended more than 30 days ago is forgotten."""
    found = ask(app, url, lambda app: app.operations(limit=limit))
    if as_json:
        print_json({"operations": [view(operation) for operation in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["id", "action", "progress", "done", "begun", "by", "filter"],
        [(o.id, o.action, o.progress, _so_far(o), o.created_at, o.by, o.filter or "all") for o in found],
        empty="No operations.",
    )


def _so_far(operation: Operation) -> str:
    refused = f", {operation.refused:,} refused" if operation.refused else ""
    of = "" if operation.action == "replay" else f" of {operation.matched:,}"
    return f"{operation.done:,}{of}{refused}"


@operations.command()
def show(
    operation_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """One operation."""
    found = ask(app, url, lambda app: app.operation(operation_id))
    if as_json:
        print_json(view(found))
        return
    from holdfast.cli.tables import show_facts

    show_facts(view(found))


@operations.command()
def cancel(
    operation_id: IdArgument, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Do no more of it; what it has done stays done."""
    found = ask(app, url, lambda app: app.cancel_operation(operation_id))
    if as_json:
        print_json(view(found))
    else:
        say(f"operation {found.id} is {found.progress}: {_so_far(found)}")

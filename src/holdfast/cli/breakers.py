"""`holdfast breakers`: the dependencies as all workers see them; open or close a breaker by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption, current_user
from holdfast.cli.pauses import ByOption, ForOption, ReasonOption
from holdfast.cli.views import print_json, say

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.domain.breaker import Breaker
    from holdfast.engine.lane_store import DependencyState

breakers = typer.Typer(
    help="The dependencies as all workers see them; open or close a breaker by hand.",
    **(PLAIN | {"no_args_is_help": False}),
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Of the dependency, or of a shard of it: name#shard.")
]


@breakers.callback(invoke_without_command=True)
def overview(
    context: typer.Context, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        list_(app, url, as_json)


@breakers.command("list")
def list_(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Every dependency that is called, or was when its breaker last changed."""
    found = ask(app, url, lambda app: app.breakers())
    if as_json:
        print_json({"breakers": [_outlook_view(state_of_dependency) for state_of_dependency in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        [
            "dependency",
            "state",
            "since",
            "next trial",
            "votes",
            "callers",
            "limit",
            "in flight",
            "calls",
            "failed",
        ],
        [
            (
                o.dependency.label,
                o.breaker.state,
                o.breaker.since,
                o.breaker.retry_at,
                o.votes,
                o.callers,
                o.limit or None,
                o.in_flight,
                f"{o.calls:,}",
                f"{o.failures:,}",
            )
            for o in found
        ],
        empty="No dependency was called yet.",
    )


def _outlook_view(state_of_dependency: DependencyState) -> dict[str, Any]:
    return {
        "dependency": state_of_dependency.dependency.name,
        "shard": state_of_dependency.dependency.shard,
        **breaker_view(state_of_dependency.breaker),
        "votes": state_of_dependency.votes,
        "callers": state_of_dependency.callers,
        "limit": state_of_dependency.limit,
        "in_flight": state_of_dependency.in_flight,
        "latency": state_of_dependency.latency,
        "calls": state_of_dependency.calls,
        "failures": state_of_dependency.failures,
    }


def breaker_view(breaker: Breaker) -> dict[str, Any]:
    return {
        "state": breaker.state,
        "version": breaker.version,
        "since": breaker.since,
        "opened_at": breaker.opened_at,
        "next_trial_at": breaker.retry_at,
        "reopens": breaker.reopens,
    }


@breakers.command("open")
def open_(
    name: NameArgument,
    app: AppOption = None,
    url: UrlOption = None,
    duration: ForOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold back all calls to it, for a time or its cooldown; then trials begin."""
    breaker = ask(
        app,
        url,
        lambda app: app.open_breaker(name, duration=duration, reason=reason, by=by or current_user()),
    )
    if as_json:
        print_json({"dependency": name, **breaker_view(breaker)})
        return
    from holdfast.cli.tables import ago

    assert breaker.retry_at is not None
    say(f"the breaker of {name} is open; trials begin {ago(breaker.retry_at)}")


@breakers.command()
def close(
    name: NameArgument,
    app: AppOption = None,
    url: UrlOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let calls to it begin again, without trials."""
    breaker = ask(app, url, lambda app: app.close_breaker(name, reason=reason, by=by or current_user()))
    if as_json:
        print_json({"dependency": name, **breaker_view(breaker)})
    else:
        say(f"the breaker of {name} is closed")

"""`holdfast breakers`: list the dependencies as all workers see them; open, close and try their breakers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli, command, list_by_default
from holdfast.cli.options import PLAIN, current_user
from holdfast.cli.pauses import ByOption, ForOption, ReasonOption
from holdfast.cli.times import ago

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.engine.lane_store import DependencyState
    from holdfast.resilience.breaker import Breaker

breakers = typer.Typer(
    help="List dependencies; open, close and try their breakers.",
    **(PLAIN | {"no_args_is_help": False}),
)

HEAD = [
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
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The dependency, or one shard of it: name#shard.")
]


@command(breakers, "list")
def list_(cli: Cli) -> None:
    """List dependencies and their breakers. These are the ones that jobs call, and those whose breaker has ever changed."""
    found = cli.ask(lambda app: app.breakers.list())
    cli.table(
        {"breakers": [_outlook_view(one) for one in found]},
        HEAD,
        (
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
        ),
        empty="No dependency was called yet.",
    )


list_by_default(breakers, list_)


def _outlook_view(state: DependencyState) -> dict[str, Any]:
    return {
        "dependency": state.dependency.name,
        "shard": state.dependency.shard,
        **breaker_view(state.breaker),
        "votes": state.votes,
        "callers": state.callers,
        "limit": state.limit,
        "in_flight": state.in_flight,
        "latency": state.latency,
        "calls": state.calls,
        "failures": state.failures,
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


@command(breakers, "open")
def open_(
    name: NameArgument, cli: Cli, duration: ForOption = None, reason: ReasonOption = "", by: ByOption = None
) -> None:
    """Hold all calls of a dependency for a time, by default its cooldown. Then trials begin."""
    breaker = cli.ask(
        lambda app: app.breakers.open(name, duration=duration, reason=reason, by=by or current_user())
    )
    assert breaker.retry_at is not None
    shown = {"dependency": name, **breaker_view(breaker)}
    cli.say(shown, f"the breaker of {name} is open; trials begin {ago(breaker.retry_at)}")


@command(breakers)
def close(name: NameArgument, cli: Cli, reason: ReasonOption = "", by: ByOption = None) -> None:
    """Allow calls of a dependency again, without trials."""
    breaker = cli.ask(lambda app: app.breakers.close(name, reason=reason, by=by or current_user()))
    cli.say({"dependency": name, **breaker_view(breaker)}, f"the breaker of {name} is closed")


@command(breakers, "try")
def try_(name: NameArgument, cli: Cli, reason: ReasonOption = "", by: ByOption = None) -> None:
    """Begin trials now: a few calls decide whether the others follow."""
    breaker = cli.ask(lambda app: app.breakers.try_(name, reason=reason, by=by or current_user()))
    cli.say({"dependency": name, **breaker_view(breaker)}, f"trials of {name} begin now")

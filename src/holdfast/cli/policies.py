"""`holdfast policies`: show the policies in force and where they come from; override them while everything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli, command, list_by_default
from holdfast.cli.options import PLAIN, LimitOption, current_user
from holdfast.cli.pauses import ByOption, ForOption, ReasonOption
from holdfast.cli.times import ago
from holdfast.cli.views import view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.tasks.policy_file.in_force import PolicyValue
    from holdfast.tasks.policy_file.overrides import Override

policies = typer.Typer(
    help="Show the policies in force; override them while everything runs.",
    **(PLAIN | {"no_args_is_help": False}),
)

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="As in holdfast.toml, e.g. tasks.convert.max_attempts.")
]
VersionOption = Annotated[
    int | None,
    typer.Option("--version", min=0, help="Only if the override has this version; 0: if there is none."),
]
_COLUMNS = ["key", "value", "by", "set", "ends", "version", "reason"]


@command(policies, "list")
def list_(cli: Cli) -> None:
    """List the overrides that are in force, oldest first."""
    found = cli.ask(lambda app: app.policies.list())
    cli.table(
        {"overrides": [view(one) for one in found]},
        _COLUMNS,
        ((one.key, one.value, one.by, one.set_at, one.expires_at, one.version, one.reason) for one in found),
        empty="No overrides; `holdfast policies set KEY VALUE` makes one.",
    )


list_by_default(policies, list_)


@command(policies)
def show(
    cli: Cli,
    under: Annotated[
        str | None,
        typer.Argument(metavar="[SECTION]", help="Only keys of this section, e.g. tasks.convert."),
    ] = None,
) -> None:
    """Show the values in force and where each comes from.

    An overridden one is shown with what it would be without its override. Only the app knows what its code says: name it with --app.
    """
    found = cli.ask(lambda app: app.policies.in_force(under))
    cli.table(
        {"policies": [_value_view(one) for one in found]},
        ["key", "value", "from", "without"],
        ((one.key, one.value, _source(one), one.without) for one in found),
        empty="No policies are set; name the app with --app to see those of its code.",
    )


def _value_view(value: PolicyValue) -> dict[str, Any]:
    return view(value) | {"override": None if value.override is None else view(value.override)}


def _source(value: PolicyValue) -> str:
    override = value.override
    if override is None:
        return value.place or value.source
    text = f"override by {override.by}"
    if override.reason:
        text += f": {override.reason}"
    if override.expires_at is not None:
        text += f", ends {ago(override.expires_at)}"
    if override.key != value.key:
        text += f" ({override.key})"
    if value.refused is not None:
        text += f"; not in force: {value.refused}"
    return f"{text}; the app has no such task" if value.unknown else text


@command(policies, "set")
def set_(
    key: KeyArgument,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="As in holdfast.toml; a text needs no quotes.")
    ],
    cli: Cli,
    duration: ForOption = None,
    reason: ReasonOption = "",
    by: ByOption = None,
    version: VersionOption = None,
) -> None:
    """Override one key of a policy. All processes follow within a few seconds."""
    from holdfast.tasks.policy_file.overrides import read_value

    found: Override = cli.ask(
        lambda app: app.policies.set(
            key, read_value(value), reason=reason, by=by or current_user(), lasts=duration, version=version
        )
    )
    ends = "until it is unset" if found.expires_at is None else f"ends {ago(found.expires_at)}"
    cli.say(view(found), f"{found.key} is overridden (version {found.version}), {ends}")


@command(policies)
def unset(
    key: KeyArgument, cli: Cli, reason: ReasonOption = "", by: ByOption = None, version: VersionOption = None
) -> None:
    """End an override. The policy file and the code count again."""
    ended = cli.ask(
        lambda app: app.policies.unset(key, reason=reason, by=by or current_user(), version=version)
    )
    cli.say(
        {"key": key, "unset": ended}, f"{key} is {'not overridden any more' if ended else 'not overridden'}"
    )


@command(policies)
def history(
    cli: Cli,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Only overrides of this key.")] = None,
    limit: LimitOption = 100,
) -> None:
    """List overrides, those that have ended too, newest first."""
    found = cli.ask(lambda app: app.policies.history(key, limit=min(limit, 1000)))
    cli.table(
        {"overrides": [view(one) for one in found]},
        [*_COLUMNS, "ended", "ended by"],
        (
            (
                one.key,
                one.value,
                one.by,
                one.set_at,
                one.expires_at,
                one.version,
                one.reason,
                one.ended_at,
                _end(one),
            )
            for one in found
        ),
        empty="Nothing was ever overridden.",
    )


def _end(override: Override) -> str | None:
    if override.ended_at is None:
        return None
    if override.ended_by is None:
        return "expired"
    return f"{override.ended_by}: {override.ended_reason}" if override.ended_reason else override.ended_by


@command(policies, has_json=False)
def export(cli: Cli) -> None:
    """Print the overrides in force as the text of a policy file."""
    print(cli.ask(lambda app: app.policies.export()), end="")

"""`holdfast keys`: create, list, rotate and revoke keys of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN
from holdfast.cli.times import ago
from holdfast.cli.views import view

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from datetime import datetime

    from holdfast.app import Holdfast
    from holdfast.engine.access import AccessKey

keys = typer.Typer(help="Create, list, rotate and revoke keys of the HTTP API.", **PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The key's id; `keys list` shows it.")]


def _view(key: AccessKey) -> dict[str, Any]:
    """Return the fields of a key, without the digest of its secret."""
    return view(key, without=("digest",))


def _ending(key: AccessKey) -> datetime | None:
    return min((end for end in (key.expires_at, key.revoked_at) if end is not None), default=None)


@command(keys)
def create(
    role: Annotated[
        str, typer.Option("--role", help="viewer, owner, operator or admin.", show_default=False)
    ],
    cli: Cli,
    owner: Annotated[
        str | None, typer.Option("--owner", help="The owner whose jobs it may reach, for the role owner.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="A name for people.")] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="It ends after this time, e.g. 90d.")
    ] = None,
) -> None:
    """Create a key. Its secret is shown only now."""
    _show_new(cli, *cli.ask(lambda app: app.keys.create(role, owner=owner, name=name, lasts=expires)))


def _show_new(cli: Cli, key: AccessKey, secret: str) -> None:
    cli.facts(_view(key) | {"secret": secret})
    if not cli.as_json:
        print("Keep the secret: only a hash of it is stored. Send it as `Authorization: Bearer …`.")


@command(keys, "list")
def list_(
    cli: Cli,
    everything: Annotated[bool, typer.Option("--all", help="Include keys that have ended.")] = False,
) -> None:
    """List valid keys, oldest first."""
    found = cli.ask(lambda app: app.keys.list(valid=not everything))
    cli.table(
        {"keys": [_view(key) for key in found]},
        ["id", "role", "owner", "created", "used", "ends", "name"],
        ((k.id, k.role, k.owner, k.created_at, k.last_used_at, _ending(k), k.name) for k in found),
        empty="No keys; `holdfast keys create` makes one.",
    )


@command(keys)
def revoke(
    key_id: IdArgument,
    cli: Cli,
    after: Annotated[
        str, typer.Option("--after", metavar="DURATION", help="Revoke it after this time, e.g. 1h.")
    ] = "0s",
) -> None:
    """Revoke a key. Servers that have cached it accept it for a few more seconds."""

    async def move(app: Holdfast) -> AccessKey:
        await app.keys.revoke(key_id, after=after)
        return next(key for key in await app.keys.list() if key.id == key_id)

    key = cli.ask(move)
    assert key.revoked_at is not None
    when = ago(key.revoked_at)
    cli.say(_view(key), f"key {key.name} {f'ends {when}' if when.startswith('in ') else 'is revoked'}")


@command(keys)
def rotate(
    key_id: IdArgument,
    cli: Cli,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="DURATION", help="How long the old one stays valid.")
    ] = "24h",
) -> None:
    """Replace a key by a new one with the same rights. The old one ends after the overlap. The new secret is shown only now."""
    _show_new(cli, *cli.ask(lambda app: app.keys.rotate(key_id, overlap=overlap)))

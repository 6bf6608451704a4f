"""`holdfast keys`: make, list, rotate and revoke the keys of the HTTP API."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import ask
from holdfast.cli.options import PLAIN, AppOption, JsonOption, UrlOption
from holdfast.cli.views import print_json, say

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from datetime import datetime

    from holdfast.app import Holdfast
    from holdfast.domain.access import AccessKey

keys = typer.Typer(help="Keys of the HTTP API: make, list, rotate and revoke them.", **PLAIN)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the key, as `keys list` shows it.")]


def _view(key: AccessKey) -> dict[str, Any]:
    """All but the digest: nobody has a use for it."""
    return {field.name: getattr(key, field.name) for field in fields(key) if field.name != "digest"}


def _ending(key: AccessKey) -> datetime | None:
    return min((end for end in (key.expires_at, key.revoked_at) if end is not None), default=None)


@keys.command()
def create(
    role: Annotated[
        str, typer.Option("--role", help="viewer, owner, operator or admin.", show_default=False)
    ],
    app: AppOption = None,
    url: UrlOption = None,
    owner: Annotated[
        str | None, typer.Option("--owner", help="Whose jobs it reaches, for the role owner.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What people call it.")] = "",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="After so long, e.g. 90d.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key. Its secret is shown now and never again."""
    _show_new(
        *ask(app, url, lambda app: app.create_key(role, owner=owner, name=name, lasts=expires)), as_json
    )


def _show_new(key: AccessKey, secret: str, as_json: bool) -> None:
    if as_json:
        print_json(_view(key) | {"secret": secret})
        return
    from holdfast.cli.tables import show_facts

    show_facts(_view(key) | {"secret": secret})
    print("Keep the secret: it is stored nowhere. It is sent as `Authorization: Bearer …`.")


@keys.command("list")
def list_(
    app: AppOption = None,
    url: UrlOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Keys that are valid, oldest first."""

    async def look(app: Holdfast) -> list[AccessKey]:
        now = await (await app.engine()).store.now()
        return [key for key in await app.keys() if everything or key.is_valid(now)]

    found = ask(app, url, look)
    if as_json:
        print_json({"keys": [_view(key) for key in found]})
        return
    from holdfast.cli.tables import show_table

    show_table(
        ["id", "role", "owner", "created", "used", "ends", "name"],
        [(k.id, k.role, k.owner, k.created_at, k.last_used_at, _ending(k), k.name) for k in found],
        empty="No keys; `holdfast keys create` makes one.",
    )


@keys.command()
def revoke(
    key_id: IdArgument,
    app: AppOption = None,
    url: UrlOption = None,
    after: Annotated[
        str, typer.Option("--after", metavar="DURATION", help="Not now, but after so long, e.g. 1h.")
    ] = "0s",
    as_json: JsonOption = False,
) -> None:
    """End a key. Servers that know it believe it for some seconds more."""

    async def move(app: Holdfast) -> AccessKey:
        await app.revoke_key(key_id, after=after)
        return next(key for key in await app.keys() if key.id == key_id)

    key = ask(app, url, move)
    if as_json:
        print_json(_view(key))
        return
    from holdfast.cli.tables import ago

    assert key.revoked_at is not None
    told = ago(key.revoked_at)
    say(f"key {key.name} {f'ends {told}' if told.startswith('in ') else 'is revoked'}")


@keys.command()
def rotate(
    key_id: IdArgument,
    app: AppOption = None,
    url: UrlOption = None,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="DURATION", help="How long the old one stays valid.")
    ] = "24h",
    as_json: JsonOption = False,
) -> None:
    """Make a new key like this one, which ends after the overlap. The new secret is shown now and never again."""
    _show_new(*ask(app, url, lambda app: app.rotate_key(key_id, overlap=overlap)), as_json)

"""`holdfast settings`: the settings in force, and where each comes from."""

from __future__ import annotations

import os
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from holdfast.cli.apps import chosen_app
from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast

settings = typer.Typer(**(PLAIN | {"no_args_is_help": False}))

#: Variables that are no settings of an app.
_OTHERS = ("DATABASE_URL", "POLICIES", "LOG", "LOG_LEVEL")
_HEALTH = "HOLDFAST_HEALTH_"


class SettingRow(NamedTuple):
    name: str
    value: Any
    source: str  #: default, code, --url, or an environment variable


@command(settings)
def run_settings(cli: Cli) -> None:
    """Print the settings in force and where each comes from: the code, the environment or the default.

    Secrets and passwords are hidden. Environment variables that no setting reads are listed at the end.
    """
    found = chosen_app(cli.app, cli.url)
    rows, unread = [_database(found, cli.url), _policies(found), *_settings(found)], _unread()
    shown = {row.name: {"value": row.value, "source": row.source} for row in rows}
    cli.table(
        {"settings": shown, "unread": unread},
        ["setting", "from", "value"],
        ((row.name, row.source, row.value) for row in rows),
    )
    for name in () if cli.as_json else unread:
        print(f"{name} is set, but no setting has this name")


def _database(app: Holdfast, url: str | None) -> SettingRow:
    from holdfast.redaction import redact_text
    from holdfast.wiring import database_url

    used = app.runtime.url
    if url is not None:
        source = "--url"
    elif used == os.environ.get("HOLDFAST_DATABASE_URL"):
        source = "HOLDFAST_DATABASE_URL"
    else:
        source = "default" if used == database_url(None) else "code"
    return SettingRow("database", redact_text(used), source)


def _policies(app: Holdfast) -> SettingRow:
    path = app.runtime.declared.reloader.path
    if path is None:
        return SettingRow("policies", None, "default")
    if str(path) == os.environ.get("HOLDFAST_POLICIES"):
        return SettingRow("policies", str(path), "HOLDFAST_POLICIES")
    return SettingRow("policies", str(path), "default" if str(path) == "holdfast.toml" else "code")


def _settings(app: Holdfast) -> list[SettingRow]:
    used = app.runtime.settings
    return [SettingRow(name, _shown(name, getattr(used, name)), _source(app, name)) for name in _names()]


def _names() -> list[str]:
    from holdfast.tasks.settings import Settings

    return [field.name for field in fields(Settings)]


def _source(app: Holdfast, name: str) -> str:
    if name in app.runtime.settings_in_code:
        return "code"
    variable = f"HOLDFAST_{name.upper()}"
    return variable if os.environ.get(variable) else "default"


def _shown(name: str, value: Any) -> Any:
    from holdfast.redaction import redact_text
    from holdfast.values.duration import format_duration

    if isinstance(value, timedelta):
        return format_duration(value)
    if name == "secret" and value is not None:
        return "(hidden)"
    return redact_text(value) if isinstance(value, str) else value


def _unread() -> list[str]:
    known = {f"HOLDFAST_{name.upper()}" for name in (*_names(), *_OTHERS)}
    return sorted(
        name
        for name in os.environ
        if name.startswith("HOLDFAST_") and name not in known and not name.startswith(_HEALTH)
    )

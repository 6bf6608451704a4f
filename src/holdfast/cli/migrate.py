"""`holdfast migrate`: update the database schema."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from holdfast.cli.apps import chosen_app
from holdfast.cli.options import PLAIN, JsonOption, UrlOption
from holdfast.cli.views import print_json

migrate = typer.Typer(**(PLAIN | {"no_args_is_help": False}))


@migrate.command()
def run(
    app: Annotated[str | None, typer.Argument(metavar="[APP]", help="pkg.module:name of an app.")] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Update the database schema, and print the migrations that ran. Running it twice is harmless."""
    chosen = chosen_app(app, url)

    async def move() -> list[str]:
        done = await chosen.migrate()
        async with chosen:  # a schema newer than this version is refused here, not at the next start
            return done

    done = asyncio.run(move())
    if as_json:
        print_json({"migrations": done})
    else:
        print("\n".join(f"ran {name}" for name in done) or "up to date")

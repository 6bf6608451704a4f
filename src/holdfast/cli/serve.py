"""`holdfast serve`: serve the HTTP API and the dashboard of an app."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.apps import load_app, retry_until_available
from holdfast.cli.exit_codes import OK
from holdfast.cli.options import PLAIN, AppArgument
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast

serve = typer.Typer(**PLAIN)

HostOption = Annotated[
    str, typer.Option("--host", help="The address to listen on. Beyond loopback every caller needs a key.")
]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 picks a free one.")]
NoAuthOption = Annotated[
    bool, typer.Option("--no-auth", help="Require no key from programs on this machine; loopback only.")
]
RateOption = Annotated[
    str, typer.Option("--rate", help='How often one owner may call, e.g. "6000/min"; "none": no limit.')
]


@serve.command()
def run_serve(
    app: AppArgument,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    no_auth: NoAuthOption = False,
    rate: RateOption = "6000/min",
) -> int:
    """Serve the HTTP API and the dashboard until SIGTERM or SIGINT."""
    from holdfast import logging as logs

    found = load_app(app)
    logs.configure(keep=True)

    async def run() -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        limit = None if rate == "none" else rate
        async with retry_until_available(found):  # until then a signal ends the process
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stopped.set)
            async with answering(found, (host, port), no_auth=no_auth, rate=limit):
                await stopped.wait()

    run_loop(run())
    return OK


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Do the same as `asyncio.run`, with uvloop if it is installed. A request takes a third less CPU, a worker 4 to 8 %."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


@asynccontextmanager
async def answering(
    app: Holdfast,
    at: tuple[str, int] | None,
    *,
    no_auth: bool = False,
    rate: str | None = "6000/min",
) -> AsyncIterator[None]:
    """Serve the API *at* this host and port inside the block, and print how to call it. None serves nothing."""
    if at is None:
        yield
        return
    try:
        from holdfast.server.access import is_loopback
        from holdfast.server.run import address_of, listen, served
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("holdfast"):
            raise
        raise UsageError(f"the HTTP API needs {error.name}; pip install 'holdfast[server]'") from None
    with listen(*at) as listening:
        async with served(app, listening, at[0], no_auth=no_auth, rate=rate) as server:
            root = address_of(listening)
            address = f"{root}/api/v1"
            keys = [] if no_auth else await app.keys.list()
            print(f"API:               {address}", flush=True)
            if is_loopback(at[0]) and not keys:
                # Who reads this may do everything anyway, as may every program on this machine.
                token = server.site.state.context.sessions.new_token()
                print(f"dashboard:         {root}/#token={token}  (this address works once)", flush=True)
                print(f"list (HTTP):       curl {address}/jobs", flush=True)
            else:
                print(f"dashboard:         {root}/  (sign in with a key)", flush=True)
                make = "" if keys else ", made by `holdfast keys create`"
                head = '-H "Authorization: Bearer $KEY"'
                print(
                    f"list (HTTP):       curl {head} {address}/jobs  ($KEY is a key of the API{make})",
                    flush=True,
                )
            yield

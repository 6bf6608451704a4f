"""`holdfast worker` and `holdfast up`: run jobs, in this process or in several."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from holdfast.cli.apps import load_app, retry_until_available, wait_out
from holdfast.cli.exit_codes import OK
from holdfast.cli.options import PLAIN, AppArgument, words
from holdfast.errors import UsageError

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast

worker = typer.Typer(**PLAIN)
up = typer.Typer(**PLAIN)

ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", "-c", min=1, help="How many jobs each process runs at once.")
]
QueuesOption = Annotated[
    list[str] | None, typer.Option("--queues", "-q", metavar="A,B", help="Only these queues. Default: all.")
]
ProcessesOption = Annotated[
    int, typer.Option("--processes", "-p", min=1, max=256, help="How many processes; a lost one is replaced.")
]
ReloadOption = Annotated[
    bool, typer.Option("--reload", help="Restart when a .py file below the working directory changes.")
]
NoMaintenanceOption = Annotated[
    bool,
    typer.Option(
        "--no-maintenance", help="Leave maintenance to other processes: due jobs, lost leases, deadlines."
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Serve /metrics, /livez, /readyz and /maintenance on this port; further processes use the next ports.",
    ),
]
MetricsHostOption = Annotated[
    str,
    typer.Option(
        "--metrics-host", help="The address of that port; 0.0.0.0 is reachable from other machines."
    ),
]
ApiPortOption = Annotated[int | None, typer.Option("--api-port", min=0, max=65535, hidden=True)]
ApiHostOption = Annotated[str, typer.Option("--api-host", hidden=True)]
RelayOption = Annotated[bool, typer.Option("--relay", help="Deliver outbox messages too.")]
DispatchOption = Annotated[
    str | None,
    typer.Option(
        "--dispatch",
        metavar="URL",
        help="Get due jobs from this broker: redis://… or amqp://…. Default: HOLDFAST_DISPATCH, else the database.",
    ),
]
UpPortOption = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="Serve the HTTP API on this port too; see `holdfast serve`."
    ),
]
UpHostOption = Annotated[
    str, typer.Option("--host", help="The address of that port. Beyond loopback every caller needs a key.")
]
UntilIdleOption = Annotated[
    bool, typer.Option("--until-idle", help="Stop when no job is left that could run.")
]


@worker.command()
def run_worker(
    app: AppArgument,
    concurrency: ConcurrencyOption = None,
    queues: QueuesOption = None,
    processes: ProcessesOption = 1,
    reload: ReloadOption = False,
    no_maintenance: NoMaintenanceOption = False,
    until_idle: UntilIdleOption = False,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    api_port: ApiPortOption = None,
    api_host: ApiHostOption = "127.0.0.1",
    relay: RelayOption = False,
    dispatch: DispatchOption = None,
) -> int:
    """Run jobs until SIGTERM or SIGINT. A second signal stops at once and releases running jobs."""
    from holdfast.cli.supervisor import die_with_parent

    die_with_parent()
    watched = None if metrics_port is None else (metrics_host, metrics_port)
    if processes > 1 or reload:
        return _supervise(
            app,
            concurrency,
            queues,
            processes,
            reload,
            no_maintenance,
            until_idle,
            watched,
            relay=relay,
            dispatch=dispatch,
        )
    found = load_app(app)
    if dispatch is not None:
        found.runtime.dispatch_through(dispatch)
    answered = None if api_port is None else (api_host, api_port)
    return _work(found, concurrency, queues, not no_maintenance, until_idle, watched, answered, relay)


@up.command()
def run_up(
    app: AppArgument,
    concurrency: ConcurrencyOption = None,
    queues: QueuesOption = None,
    processes: ProcessesOption = 1,
    reload: ReloadOption = False,
    port: UpPortOption = None,
    host: UpHostOption = "127.0.0.1",
) -> int:
    """Prepare the database, print how to enqueue, and run a worker with maintenance and the relay; with --port the HTTP API too."""
    from holdfast import logging as logs

    found = load_app(app)
    logs.configure(keep=True)
    asyncio.run(wait_out(found, found.migrate))
    for line in how_to(found, app):
        print(line, flush=True)
    answered = None if port is None else (host, port)
    if processes > 1 or reload:
        return _supervise(
            app, concurrency, queues, processes, reload, False, False, answered=answered, relay=True
        )
    return _work(found, concurrency, queues, True, False, answered=answered, relay=True)


def how_to(app: Holdfast, name: str) -> list[str]:
    """Return lines that say how to enqueue the app's first task, and how to list jobs."""
    listed = f"list (shell):      holdfast jobs list --app {name}"
    task = next(iter(app.tasks.values()), None)
    if task is None:
        return [f"{name} has no tasks yet; decorate a function with @{name.partition(':')[2]}.task", listed]
    module, function, required = task.function.__module__, task.function.__qualname__, task.signature.required
    in_python = ", ".join(f"{argument}=…" for argument in required)
    in_shell = " ".join([task.name, *(f"{argument}=…" for argument in required)])
    return [
        f"enqueue (Python):  from {module} import {function}; {function}.enqueue_sync({in_python})",
        f"enqueue (shell):   holdfast enqueue {in_shell} --app {name}",
        listed,
    ]


def _named(queues: list[str] | None) -> list[str] | None:
    """Return the queues, or None for all. Raises `UsageError` if the option is given but empty, as by an empty shell variable."""
    chosen = words(queues)
    if queues and not chosen:
        raise UsageError("--queues names no queue; leave it out to serve all")
    return chosen or None


def _work(
    app: Holdfast,
    concurrency: int | None,
    queues: list[str] | None,
    maintenance: bool,
    until_idle: bool,
    watched: tuple[str, int] | None = None,
    answered: tuple[str, int] | None = None,
    relay: bool = False,
) -> int:
    from holdfast import logging as logs
    from holdfast.cli.serve import answering, run_loop
    from holdfast.cli.supervisor import report_to_parent
    from holdfast.signals import AFTER_GRACE, with_deadline

    logs.configure(keep=True)
    if not app.tasks:
        raise UsageError(
            "this app has no tasks, so there is nothing to run; import the modules that declare them"
        )

    chosen = _named(queues)

    async def work() -> None:
        async with retry_until_available(app), _watching(app, watched), answering(app, answered):
            await app.run_worker(
                concurrency=concurrency,
                queues=chosen,
                maintenance=maintenance,
                until_idle=until_idle,
                handle_signals=True,
                relay=relay,
            )
        _leave_tasks()  # before the loop ends, which would wait for them

    report_to_parent(app.runtime.settings.grace.total_seconds() + AFTER_GRACE)
    with with_deadline():
        run_loop(work())
        _leave_threads()
    return OK


@asynccontextmanager
async def _watching(app: Holdfast, watched: tuple[str, int] | None) -> AsyncIterator[None]:
    """Answer health checks and metrics requests inside the block."""
    if watched is None:
        yield
        return
    host, port = watched
    async with app.metrics.serve(port, host):
        yield


def _leave_tasks() -> None:
    """Exit if a handler has ignored every cancellation. Its job was released, so the process need not wait for it."""
    from holdfast.worker.worker import ATTEMPTS

    if any(task.get_name() == ATTEMPTS for task in asyncio.all_tasks()):
        _leave("a handler does not stop when it is cancelled")


def _leave_threads() -> None:
    """Exit if a handler still runs in a thread, which cannot be stopped. Its job was released."""
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-job"):
            thread.join(0.2)
            if thread.is_alive():
                _leave("a handler still runs in a thread")


def _leave(reason: str) -> NoReturn:
    """End the process without waiting for what runs in it. Everything is settled, and the store is closed."""
    from holdfast.logging import Log

    Log("holdfast.worker").warning("process.exit_forced", reason=reason, hint="its job was released")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(OK)


def _supervise(
    app: str,
    concurrency: int | None,
    queues: list[str] | None,
    processes: int,
    reload: bool,
    no_maintenance: bool,
    until_idle: bool,
    watched: tuple[str, int] | None = None,
    answered: tuple[str, int] | None = None,
    *,
    relay: bool = False,
    dispatch: str | None = None,
) -> int:
    from holdfast import logging as logs
    from holdfast.cli.reload import SourceWatcher
    from holdfast.cli.supervisor import Supervisor

    logs.configure()
    command = [sys.executable, "-m", "holdfast", "worker", app]
    if concurrency is not None:
        command += ["--concurrency", str(concurrency)]
    for queue in _named(queues) or ():
        command += ["--queues", queue]
    if dispatch is not None:
        command += ["--dispatch", dispatch]
    command += ["--no-maintenance"] * no_maintenance + ["--until-idle"] * until_idle

    def own(place: int) -> list[str]:
        """Return the options of one process. Each has its own metrics port; only the first serves the API and runs the relay."""
        given: list[str] = ["--relay"] * (relay and place == 0)
        if watched is not None:
            host, port = watched
            given += ["--metrics-host", host, "--metrics-port", str(port + place if port else 0)]
        if answered is not None and place == 0:
            given += ["--api-host", answered[0], "--api-port", str(answered[1])]
        return given

    return Supervisor(command, processes, SourceWatcher().changed if reload else None, own).run()

"""`make run`: start the processes of a system, print their addresses, keep them up, and stop them."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from devservices.postgres import Postgres
from devservices.server import Unavailable, free_port
from holdfast import Holdfast, HoldfastError
from systems.common.children import ROOT, Child, NotStarted
from systems.common.parts import kept_secret
from systems.common.servers import RUNNING, kept_up

_TICK_SEC = 0.1
#: Defaults for a demo, not for production: Ctrl-C stops at once, since a released job does not use up an
#: attempt.
DEMO = {"HOLDFAST_LOG_LEVEL": "warning", "HOLDFAST_GRACE": "1s"}

Run = Callable[[argparse.Namespace, threading.Event], int]


def parser_for(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every system has."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--host", default="127.0.0.1", help="where it listens")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="the folder for everything that is kept"
    )
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    return parser


def run_system(options: argparse.Namespace, run: Run) -> int:
    """Call *run* until SIGINT or SIGTERM, and return the exit code.

    A reason not to start is printed as one line.
    """
    with _stop_signals() as stopped:
        try:
            return run(options, stopped)
        except NotStarted as lost:
            if stopped.is_set():
                return 0
            trouble = f"the {lost} did not start; its output above has the reason"
        except (Unavailable, HoldfastError) as missing:
            trouble = str(missing)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            trouble = f"the data folder {options.data} cannot be used: {reason}; choose another with DATA="
        print(f"run: {trouble}", file=sys.stderr)
        return 1


def python(name: str, environment: Mapping[str, str], *arguments: str, says_ready: bool = False) -> Child:
    """Return a child that runs `python -m` with *arguments*."""
    return Child(name, [sys.executable, "-m", *arguments], environment, says_ready=says_ready)


def child_environment(defaults: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the children. The caller's variables override *defaults* but not *fixed*."""
    own = {name: value for name, value in os.environ.items() if value.strip() or name not in defaults}
    return DEMO | dict(defaults) | own | dict(fixed) | {"PYTHONUNBUFFERED": "1"}


def start_all(children: Sequence[Child], web: Child) -> str:
    """Start the children, wait for those that report readiness, and return the address of *web*."""
    for child in children:
        child.start()
    address = web.wait_until_ready()
    for child in children:
        if child.says_ready and child is not web:
            child.wait_until_ready()
    web.command = [*web.command[:-1], address.rpartition(":")[2]]  # a restart uses the same port
    return address


def keep_up(children: Sequence[Child], stopped: threading.Event) -> None:
    """Restart children and private servers that exit, until *stopped* is set."""
    while not stopped.wait(_TICK_SEC):
        for one in (*RUNNING, *children):
            one.tend()
    print("stopping …", file=sys.stderr, flush=True)


def stop_all(children: Sequence[Child], last: Sequence[Child] = (), *, within: float = 2.5) -> None:
    """Stop the children within *within* seconds, then kill them.

    Those in *last* are called by the others. They stop later, so that requests in progress can finish.
    """
    until = time.monotonic() + within
    first = [child for child in children if child not in last]
    for group, end in ((first, until), (last, max(until, time.monotonic() + 0.5))):
        for child in group:
            child.terminate()
        for child in group:
            child.end(end)


def env_value(variable: str) -> str:
    """Return the value of an environment variable, without spaces around it. Return "" if it is not set."""
    return os.environ.get(variable, "").strip()


def find_database(stack: contextlib.ExitStack, data: Path, name: str, store: str) -> dict[str, str]:
    """Return the environment variables for the jobs' database.

    The database is the caller's `DATABASE_URL`, a private PostgreSQL below *data*, or the SQLite file *name*.
    A private PostgreSQL gets a `HOLDFAST_SECRET`, kept beside it. On SQLite the app keeps its own secret, and
    with their own PostgreSQL callers set their own.

    Args:
        stack: Stops the private PostgreSQL at its end.
        data: The data folder.
        name: The name of the SQLite file.
        store: "postgres" for a private PostgreSQL.
    """
    if url := env_value("DATABASE_URL"):
        return {"DATABASE_URL": url}
    if store != "postgres":
        return {"DATABASE_URL": f"sqlite:///{data / name}"}
    server = Postgres(folder=data / "postgres")
    stack.enter_context(kept_up(server, stop_within=2.0))
    secret = env_value("HOLDFAST_SECRET") or kept_secret(data / "postgres" / "holdfast.secret")
    return {"DATABASE_URL": server.dsn, "HOLDFAST_SECRET": secret}


def data_line(data: Path, what: str) -> str:
    """Return the line that tells where the data is.

    The caller's own database is named by its variable only.
    """
    if env_value("DATABASE_URL"):
        return f"  the data   {data}: {what}; the jobs are in DATABASE_URL"
    return f"  the data   {data}: {what}, jobs; remove it to start over"


async def page_key(app: Holdfast, owner: str) -> str:
    """Return a key of *owner* with which the address that `make run` prints signs in. It is valid for a day."""
    _, secret = await app.keys.create("owner", owner=owner, name="make run (page)", lasts="24h")
    return secret


def page_line(address: str, key: str) -> str:
    """Return the line with the address of the page. The browser does not send what is behind the #."""
    return f"  the page   open {address}/#key={key}"


def migrate(app: str, environment: Mapping[str, str]) -> None:
    """Migrate a PostgreSQL database to the current schema. The app does so itself on SQLite."""
    if environment["DATABASE_URL"].startswith("sqlite:"):
        return
    command = [sys.executable, "-m", "holdfast", "migrate", app]
    done = subprocess.run(command, cwd=ROOT, env=dict(environment), stdout=subprocess.DEVNULL)
    if done.returncode:
        raise NotStarted("migration")


def workers(app: str, environment: Mapping[str, str], processes: int) -> tuple[Child, str]:
    """Return the workers of *app*, and a line with the metrics address of each process."""
    first = free_port(processes)
    command = ("worker", app, "--processes", str(processes), "--metrics-port", str(first))
    addresses = " ".join(f"http://127.0.0.1:{first + number}/metrics" for number in range(processes))
    return python("worker", environment, "holdfast", *command), f"  metrics    curl {addresses}"


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

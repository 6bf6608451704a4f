"""`make run`: the processes of a system as children of one, which says where they are, keeps them up and stops them in order."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from holdfast import HoldfastError
from systems.common.children import ROOT, Child, NotStarted
from systems.common.parts import kept_secret
from systems.common.postgres import PrivatePostgres
from systems.common.servers import RUNNING, NoServer

_TICK_SEC = 0.1
#: What a demo wants that production does not: Ctrl-C means now, and what is given back costs nothing.
DEMO = {"HOLDFAST_LOG_LEVEL": "warning", "HOLDFAST_GRACE": "1s"}

Run = Callable[[argparse.Namespace, threading.Event], int]


def parser_for(prog: str, description: str | None) -> argparse.ArgumentParser:
    """The options that every system has."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--host", default="127.0.0.1", help="where it listens")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="the folder for everything that is kept"
    )
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    return parser


def run_system(given: argparse.Namespace, run: Run) -> int:
    """The exit code; what keeps it from running is one line."""
    with _told_to_stop() as stopped:
        try:
            return run(given, stopped)
        except NotStarted as lost:
            if stopped.is_set():
                return 0
            trouble = f"the {lost} did not start; it says why above"
        except (NoServer, HoldfastError) as missing:
            trouble = str(missing)
        except OSError as error:
            reason = error.strerror or "it cannot be used"
            trouble = f"{given.data} as the folder for data: {reason}; choose another with DATA="
        print(f"run: {trouble}", file=sys.stderr)
        return 1


def python(name: str, environment: Mapping[str, str], *arguments: str, says_ready: bool = False) -> Child:
    return Child(name, [sys.executable, "-m", *arguments], environment, says_ready=says_ready)


def around(defaults: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """The environment of the children: what the caller has set wins, but for what must fit together."""
    kept = {name: value for name, value in os.environ.items() if value.strip() or name not in defaults}
    return DEMO | dict(defaults) | kept | dict(fixed) | {"PYTHONUNBUFFERED": "1"}


def start_all(children: Sequence[Child], web: Child) -> str:
    """Start them, wait for those that say when they are ready; the address of *web*."""
    for child in children:
        child.start()
    address = web.wait_until_ready()
    for child in children:
        if child.says_ready and child is not web:
            child.wait_until_ready()
    web.command = [*web.command[:-1], address.rpartition(":")[2]]  # found again at the same place
    return address


def keep_up(children: Sequence[Child], stopped: threading.Event) -> None:
    """Start again what was lost, until *stopped*: the children, and the private servers that they use."""
    while not stopped.wait(_TICK_SEC):
        for one in (*RUNNING, *children):
            one.tend()
    print("stopping …", file=sys.stderr, flush=True)


def stop_all(children: Sequence[Child], last: Sequence[Child] = (), *, within: float = 2.5) -> None:
    """*last* are those that the others call: what is under way may still end."""
    until = time.monotonic() + within
    first = [child for child in children if child not in last]
    for group, end in ((first, until), (last, max(until, time.monotonic() + 0.5))):
        for child in group:
            child.tell_to_stop()
        for child in group:
            child.end(end)


def given(variable: str) -> str:
    """Return what the caller has set in the environment; an empty variable counts as not set."""
    return os.environ.get(variable, "").strip()


def find_database(stack: contextlib.ExitStack, data: Path, name: str, store: str) -> dict[str, str]:
    """Return the variables for the jobs' database: `DATABASE_URL` as it is set, a private PostgreSQL below *data*, or the file *name*.

    A private PostgreSQL comes with `HOLDFAST_SECRET`, kept beside it. On SQLite the app keeps one by itself, and a caller's own
    PostgreSQL needs the caller's own.
    """
    if url := given("DATABASE_URL"):
        return {"DATABASE_URL": url}
    if store != "postgres":
        return {"DATABASE_URL": f"sqlite:///{data / name}"}
    server = stack.enter_context(PrivatePostgres(data / "postgres"))
    secret = given("HOLDFAST_SECRET") or kept_secret(data / "postgres" / "holdfast.secret")
    return {"DATABASE_URL": server.url, "HOLDFAST_SECRET": secret}


def say_data(data: Path, what: str) -> str:
    """Return the line that says where everything is; a database of the caller's own is named by its variable alone."""
    if given("DATABASE_URL"):
        return f"  the data   {data}: {what}; the jobs are in DATABASE_URL"
    return f"  the data   {data}: {what}, jobs; remove it to begin anew"


def migrate(app: str, environment: Mapping[str, str]) -> None:
    """Bring the schema of a PostgreSQL up to date; SQLite does it by itself."""
    if environment["DATABASE_URL"].startswith("sqlite:"):
        return
    command = [sys.executable, "-m", "holdfast", "migrate", app]
    done = subprocess.run(command, cwd=ROOT, env=dict(environment), stdout=subprocess.DEVNULL)
    if done.returncode:
        raise NotStarted("migration")


def workers(app: str, environment: Mapping[str, str], processes: int) -> tuple[Child, str]:
    """The workers of *app*, and a line that says where each tells its figures: what it has run is counted by itself alone."""
    first = free_port(processes)
    work = ("worker", app, "--processes", str(processes), "--metrics-port", str(first))
    places = " ".join(f"http://127.0.0.1:{first + number}/metrics" for number in range(processes))
    return python("worker", environment, "holdfast", *work), f"  metrics    curl {places}"


def free_port(several: int = 1) -> int:
    """The first of *several* in a row."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first = 0
            for number in range(several):
                probe = stack.enter_context(socket.socket())
                probe.bind(("127.0.0.1", first + number if first else 0))
                first = first or int(probe.getsockname()[1])
            return first


def private_file(file: Path, content: str) -> None:
    """Written anew, readable by its owner alone."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(content)


@contextlib.contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

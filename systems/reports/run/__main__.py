"""`make run SYSTEM=reports`: start the reports, say where they are, keep them up, and stop it all within three seconds of Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from holdfast import Holdfast, HoldfastError
from systems.converter.run.children import ROOT, Child, NotStarted
from systems.converter.run.postgres import NoServer, PrivatePostgres
from systems.reports.samples import SAMPLES

#: From being told to stop until everything has ended, or is killed.
STOP_SEC = 2.5
_TICK_SEC = 0.1
_KEY_FILE = "operator.key"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.reports.run", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="where the API listens")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="the folder for everything that is kept"
    )
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    parser.add_argument("--faults", action="store_true", help="enable the model's fault switch; for tests")
    given = parser.parse_args()
    with _told_to_stop() as stopped:
        try:
            return _run(given, stopped)
        except NotStarted as lost:
            if not stopped.is_set():
                print(f"run: the {lost} did not start; it says why above", file=sys.stderr)
            return 0 if stopped.is_set() else 1
        except (NoServer, HoldfastError) as missing:
            print(f"run: {missing}", file=sys.stderr)
            return 1
        except OSError as error:
            reason = error.strerror or "it cannot be used"
            print(
                f"run: {given.data} as the folder for data: {reason}; choose another with DATA=",
                file=sys.stderr,
            )
            return 1


def _run(given: argparse.Namespace, stopped: threading.Event) -> int:
    data: Path = given.data.resolve()
    for folder in ("documents", "documents/inbox", "reports", "schemas"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{data / 'reports.db'}"
        if given.store == "postgres":
            url = stack.enter_context(PrivatePostgres(data / "postgres")).url
        model_port = _free_port()
        environment = _environment(data, url, model_port)
        children = _children(given, environment, model_port)
        stack.callback(_stop, children)
        if given.store == "postgres":
            _migrate(environment)
        _make_key(data / _KEY_FILE, url)
        model, web, _ = children
        for child in children:
            child.start()
        address = web.wait_until_ready()
        model.wait_until_ready()
        web.command = [*web.command[:-1], address.rpartition(":")[2]]  # found again at the same place
        _say(address, data, given.data, model_port if given.faults else None)
        while not stopped.wait(_TICK_SEC):
            for child in children:
                child.tend()
        print("stopping …", file=sys.stderr, flush=True)
    return 0


def _children(given: argparse.Namespace, environment: Mapping[str, str], model_port: int) -> list[Child]:
    """The model, the API and the worker, in this order."""
    model = _child("model", environment, "systems.provider", "--port", str(model_port))
    model.command = [*model.command, *(["--faults"] if given.faults else [])]
    web = _child("web", environment, "systems.reports.web", "--host", given.host, "--port", str(given.port))
    model.says_ready = web.says_ready = True
    worker = _child("worker", environment, "holdfast", "worker", "systems.reports.app:app")
    worker.command = [*worker.command, "--processes", str(given.workers)]
    return [model, web, worker]


def _child(name: str, environment: Mapping[str, str], module: str, *arguments: str) -> Child:
    return Child(name, [sys.executable, "-m", module, *arguments], environment)


def _environment(data: Path, url: str, model_port: int) -> dict[str, str]:
    """What the caller has set wins, but for the database: a model or a bucket of one's own, too."""
    defaults = {
        "HOLDFAST_LOG_LEVEL": "warning",
        "HOLDFAST_GRACE": "1s",  # Ctrl-C means now; what is given back costs nothing
        "DOCUMENTS_URL": str(data / "documents"),
        "REPORTS_URL": str(data / "reports"),
        "SCHEMAS_DIR": str(data / "schemas"),
        "WATCH_URL": str(data / "documents" / "inbox"),
        "WATCH_EVERY_MS": "2000",
        "MODEL_URL": f"http://127.0.0.1:{model_port}/v1",
        "MODEL_PRICE_IN": "0.15",
        "MODEL_PRICE_OUT": "0.60",
    }
    return defaults | dict(os.environ) | {"DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}


def _migrate(environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "holdfast", "migrate", "systems.reports.app:app"]
    done = subprocess.run(command, cwd=ROOT, env=dict(environment), stdout=subprocess.DEVNULL)
    if done.returncode:
        raise NotStarted("migration")


def _make_key(file: Path, url: str) -> None:
    """The operator's key of this folder; made the first time, readable by its owner alone."""
    known = file.read_text().strip() if file.exists() else ""

    async def make() -> str:
        async with Holdfast(url) as app:
            if known and await app.find_key(known):
                return known
            return (await app.create_key("operator", name="make run"))[1]

    secret = asyncio.run(make())
    if secret != known:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(secret)


def _stop(children: list[Child]) -> None:
    until = time.monotonic() + STOP_SEC
    model, *others = children
    for child in others:
        child.tell_to_stop()
    for child in others:
        child.end(until)
    model.tell_to_stop()  # last: what is under way may still end
    model.end(max(until, time.monotonic() + 0.5))


def _say(address: str, data: Path, shown: Path, faults_at: int | None) -> None:
    for name, text in SAMPLES.items():
        (data / "documents" / name).write_text(text)
    print(f"ready: {address}")
    print(f"  the key    export KEY=$(cat {shown / _KEY_FILE})")
    print(
        '  the API    curl -H "authorization: bearer $KEY" -d \'{"source": "invoice-1.txt", "schema": "invoice"}\''
        f" {address}/reports"
    )
    print(f'             curl -H "authorization: bearer $KEY" {address}/reports')
    print(f"  the watch  cp {shown / 'documents' / 'invoice-2.txt'} {shown / 'documents' / 'inbox'}/")
    print(f"  the data   {data}: documents, reports, schemas, jobs; remove it to begin anew")
    if faults_at is not None:
        print(
            f'  the faults curl -d \'{{"status": 503, "seconds": 30}}\' http://127.0.0.1:{faults_at}/faults'
        )
    print("  to stop    Ctrl-C", flush=True)


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())

"""`make run`: start the converter, say where it is, keep it up, and stop it all within three seconds of Ctrl-C."""

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
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from systems.converter.run.children import ROOT, Child, NotStarted
from systems.converter.run.postgres import NoServer, PrivatePostgres

#: From being told to stop until everything has ended, or is killed.
STOP_SEC = 2.5
_TICK_SEC = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.converter.run", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="where the page and the API listen")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="the folder for everything that is kept"
    )
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    parser.add_argument("--faults", action="store_true", help="enable the gateway's fault switch; for tests")
    given = parser.parse_args()
    with _told_to_stop() as stopped:
        try:
            return _run(given, stopped)
        except NotStarted as lost:
            if not stopped.is_set():
                print(f"run: the {lost} did not start; it says why above", file=sys.stderr)
            return 0 if stopped.is_set() else 1
        except NoServer as missing:
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
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{data / 'converter.db'}"
        if given.store == "postgres":
            url = stack.enter_context(PrivatePostgres(data / "postgres")).url
        gateway_port = _free_port()
        environment = _environment(data, url, gateway_port)
        gateway = _child("gateway", environment, "systems.converter.gateway", "--port", str(gateway_port))
        gateway.command = [*gateway.command, *(["--faults"] if given.faults else [])]
        web = _child(
            "web", environment, "systems.converter.web", "--host", given.host, "--port", str(given.port)
        )
        gateway.says_ready = web.says_ready = True
        worker = _child("worker", environment, "holdfast", "worker", "systems.converter.app:app")
        worker.command = [*worker.command, "--processes", str(given.workers)]
        children = [gateway, web, worker]
        stack.callback(_stop, children)
        if given.store == "postgres":
            _migrate(environment)
        for child in children:
            child.start()
        address = web.wait_until_ready()
        gateway.wait_until_ready()
        web.command = [*web.command[:-1], address.rpartition(":")[2]]  # found again at the same place
        _say(address, data, given.data, gateway_port if given.faults else None)
        while not stopped.wait(_TICK_SEC):
            for child in children:
                child.tend()
        print("stopping …", file=sys.stderr, flush=True)
    return 0


def _child(name: str, environment: Mapping[str, str], module: str, *arguments: str) -> Child:
    return Child(name, [sys.executable, "-m", module, *arguments], environment)


def _environment(data: Path, url: str, gateway_port: int) -> dict[str, str]:
    """What the caller has set wins, but for what must fit together here."""
    defaults = {
        "HOLDFAST_LOG_LEVEL": "warning",
        "HOLDFAST_GRACE": "1s",  # Ctrl-C means now; what is given back costs nothing
        "UPLOADS_DIR": str(data / "uploads"),
        "RESULTS_DIR": str(data / "results"),
        "SESSION_KEY_FILE": str(data / "session.key"),
    }
    fixed = {"DATABASE_URL": url, "GATEWAY_URL": f"http://127.0.0.1:{gateway_port}", "PYTHONUNBUFFERED": "1"}
    return defaults | dict(os.environ) | fixed


def _migrate(environment: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "holdfast", "migrate", "systems.converter.app:app"]
    done = subprocess.run(command, cwd=ROOT, env=dict(environment), stdout=subprocess.DEVNULL)
    if done.returncode:
        raise NotStarted("migration")


def _stop(children: list[Child]) -> None:
    until = time.monotonic() + STOP_SEC
    gateway, *others = children
    for child in others:
        child.tell_to_stop()
    for child in others:
        child.end(until)
    gateway.tell_to_stop()  # last: what is under way may still end
    gateway.end(max(until, time.monotonic() + 0.5))


def _say(address: str, data: Path, shown: Path, faults_at: int | None) -> None:
    from systems.converter.samples import SAMPLES

    samples = data / "samples"
    samples.mkdir(exist_ok=True)
    for name, make in SAMPLES.items():
        (samples / name).write_bytes(make())
    print(f"ready: {address}")
    print(f"  the page   open {address}/ and drop a PDF on it; samples are in {shown / 'samples'}")
    jar = shown / "cookies"
    print(
        f"  the API    curl -b {jar} -c {jar} -F file=@{samples_of(shown)} -F mapping=jats {address}/api/upload"
    )
    print(f"             curl -b {jar} {address}/api/jobs")
    print(f"  the data   {data}: jobs, uploads, results; remove it to begin anew")
    if faults_at is not None:
        print(
            f'  the faults curl -d \'{{"status": 502, "seconds": 30}}\' http://127.0.0.1:{faults_at}/faults'
        )
    print("  to stop    Ctrl-C", flush=True)


def samples_of(shown: Path) -> Path:
    return shown / "samples" / "article.pdf"


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

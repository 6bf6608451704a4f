"""`make run SYSTEM=grading`: start grading, say where it is, keep it up, and stop it all when Ctrl-C is pressed."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from holdfast import HoldfastError
from systems.converter.run.children import Child, NotStarted
from systems.converter.run.postgres import NoServer
from systems.grading.audio import make_recording
from systems.grading.run.rabbitmq import PrivateRabbitMq
from systems.grading.settings import Settings

#: From being told to stop until everything but the broker has ended, or is killed.
STOP_SEC = 2.0
_TICK_SEC = 0.1
_READY = ("provider", "web", "callbacks")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.grading.run", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="where the API listens")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="the folder for everything that is kept"
    )
    parser.add_argument("--workers", type=int, default=1, help="Celery worker processes")
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
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        broker = os.environ.get("BROKER_URL") or stack.enter_context(PrivateRabbitMq(data / "rabbitmq")).url
        environment = _environment(data, broker)
        Settings.read(environment)  # what cannot be read is told once, here
        children = _children(given, environment)
        stack.callback(_stop, list(children.values()))
        for child in children.values():
            child.start()
        address = children["web"].wait_until_ready()
        for name in _READY:
            if name in children and name != "web":
                children[name].wait_until_ready()
        children["web"].command = [*children["web"].command[:-1], address.rpartition(":")[2]]
        _say(address, data, given.data, environment["PROVIDER_URL"])
        while not stopped.wait(_TICK_SEC):
            for child in children.values():
                child.tend()
        print("stopping …", file=sys.stderr, flush=True)
    return 0


def _children(given: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Child]:
    def python(name: str, *arguments: str, **more: str) -> Child:
        command = [sys.executable, "-m", *arguments]
        return Child(name, command, {**environment, **more}, says_ready=name in _READY)

    found = {
        "web": python("web", "systems.grading.web", "--host", given.host, "--port", str(given.port)),
        "engine": python("engine", "systems.grading.engine"),
        "callbacks": python("callbacks", "systems.grading.callbacks"),
    }
    if "PROVIDER_URL" not in os.environ:
        port = environment["PROVIDER_URL"].rpartition(":")[2]
        found["provider"] = python("provider", "systems.provider", "--port", port, "--faults")
    for number in range(given.workers):
        words = [
            "celery",
            "-q",
            "-A",
            "systems.grading.worker.app",
            "worker",
            "-P",
            "threads",
            "-c",
            "8",
            "-l",
            "error",
        ]
        # As root, Celery warns; whoever runs a demo as root knows.
        quiet = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges"}
        found[f"worker {number}"] = python(f"worker {number}", *words, "-n", f"grading{number}@%h", **quiet)
    return found


def _environment(data: Path, broker: str) -> dict[str, str]:
    """What the caller has set wins, but for what must fit together here."""
    defaults = {
        "HOLDFAST_LOG_LEVEL": "warning",
        "HOLDFAST_GRACE": "1s",
        "DATABASE_URL": f"sqlite:///{data / 'grading.db'}",
        "AUDIO_DIR": str(data / "audio"),
        "LEDGER": str(data / "ledger.db"),
        "CALLBACK_SECRETS": _secret(data / "callback.secret"),
        "PROVIDER_URL": f"http://127.0.0.1:{_free_port()}",
    }
    return defaults | dict(os.environ) | {"BROKER_URL": broker, "PYTHONUNBUFFERED": "1"}


def _secret(file: Path) -> str:
    with contextlib.suppress(FileExistsError):
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(secrets.token_hex(32))
    return file.read_text()


def _stop(children: list[Child]) -> None:
    until = time.monotonic() + STOP_SEC
    for child in children:
        child.tell_to_stop()
    for child in children:
        child.end(until)


def _say(address: str, data: Path, shown: Path, provider: str) -> None:
    samples = data / "samples"
    samples.mkdir(exist_ok=True)
    words = "I like to travel, because I meet people. However, it is tiring."
    (samples / "speech.wav").write_bytes(make_recording(words, seconds=2))
    print(f"ready: {address}")
    print(f"""  writing    curl -H 'content-type: application/json' -d '{{"skill": "writing", "text": "It rains, because \
it is autumn."}}' {address}/submissions""")
    print(
        f"  speaking   curl -F skill=speaking -F audio=@{shown / 'samples' / 'speech.wav'} {address}/submissions"
    )
    print(f"  the grade  curl {address}/submissions/ID; as it comes: curl -N {address}/submissions/ID/events")
    print(f"  operators  curl {address}/dlq; curl {address}/outbox")
    print(f"""  an outage  curl -d '{{"status": 503, "seconds": 30}}' {provider}/faults""")
    print(f"  the data   {data}: submissions, recordings, broker; remove it to begin anew")
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

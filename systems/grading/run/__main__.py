"""`make run SYSTEM=grading`: start grading, say where it is, keep it up, and stop it all when Ctrl-C is pressed."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from systems.common.children import Child
from systems.common.parts import kept_secret
from systems.common.running import (
    around,
    free_port,
    keep_up,
    parser_for,
    python,
    run_system,
    start_all,
    stop_all,
)
from systems.grading.audio import make_recording
from systems.grading.run.rabbitmq import PrivateRabbitMq
from systems.grading.settings import URL_FILE, Settings

_APP = "systems.grading.app:app"
#: Celery with threads: its pool of processes would start one for each slot.
_CELERY = (
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
)


def main() -> int:
    return run_system(parser_for("python -m systems.grading.run", __doc__).parse_args(), _run)


def _run(given: argparse.Namespace, stopped: threading.Event) -> int:
    data: Path = given.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        broker = os.environ.get("BROKER_URL") or stack.enter_context(PrivateRabbitMq(data / "rabbitmq")).url
        environment = _environment(data, broker)
        Settings.read(environment)  # what cannot be read is told once, here
        children, figures = _children(given, environment)
        stack.callback(stop_all, children, within=2.0)  # the broker needs the rest
        address = start_all(children, children[0])
        _say(address, data, given.data, environment, figures)
        keep_up(children, stopped)
    return 0


def _children(given: argparse.Namespace, environment: Mapping[str, str]) -> tuple[list[Child], list[int]]:
    """The API is the first of them; and the ports on which engine, callbacks and Celery workers tell their figures."""
    place = ("--host", given.host, "--port", str(given.port))
    first = free_port(2 + given.workers)
    ports = list(range(first, first + 2 + given.workers))
    engine = ("holdfast", "worker", _APP, "--relay", "--metrics-port", str(ports[0]))
    callbacks = ("systems.grading.callbacks", "--metrics-port", str(ports[1]))
    found = [
        python("web", environment, "systems.grading.web", *place, says_ready=True),
        python("engine", environment, *engine),
        python("callbacks", environment, *callbacks, says_ready=True),
    ]
    if "PROVIDER_URL" not in os.environ:
        port = environment["PROVIDER_URL"].rpartition(":")[2]
        provider = ("systems.provider", "--port", port, "--faults")
        found.append(python("provider", environment, *provider, says_ready=True))
    # As root, Celery warns; a person who runs a demo as root knows.
    quiet = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges"}
    for number in range(given.workers):
        name = f"grading{number}@%h"
        own = {**environment, **quiet, "WORKER_METRICS_PORT": str(ports[2 + number])}
        found.append(python(f"worker {number}", own, *_CELERY, "-n", name))
    return found, ports


def _environment(data: Path, broker: str) -> dict[str, str]:
    defaults = {
        "DATABASE_URL": f"sqlite:///{data / 'grading.db'}",
        "AUDIO_DIR": str(data / "audio"),
        "LEDGER": str(data / "grading-ledger.db"),
        "CALLBACK_SECRETS": kept_secret(data / "callback.secret"),
        "PROVIDER_URL": f"http://127.0.0.1:{free_port()}",
    }
    return around(defaults, {"BROKER_URL": broker})


def _say(address: str, data: Path, shown: Path, environment: Mapping[str, str], ports: Sequence[int]) -> None:
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
    print(f"  commands   {_exports(shown, environment)}")
    print("             holdfast breakers; holdfast grading dlq list; holdfast grading alarms")
    print(f"  metrics    {' '.join(f'http://127.0.0.1:{port}/metrics' for port in ports)}")
    faults = f"{environment['PROVIDER_URL']}/faults"
    print(f"""  an outage  curl -d '{{"status": 503, "seconds": 30}}' {faults}""")
    print(f"  the data   {data}: submissions, recordings, broker; remove it to begin anew")
    print("  to stop    Ctrl-C", flush=True)


def _exports(shown: Path, environment: Mapping[str, str]) -> str:
    """What a shell needs for the commands of operators. The broker's password is not shown: its address is in a file."""
    broker = f"$(cat {shown / 'rabbitmq' / URL_FILE})" if "BROKER_URL" not in os.environ else "$BROKER_URL"
    url = environment["DATABASE_URL"] if "DATABASE_URL" not in os.environ else "$DATABASE_URL"
    ledger = environment["LEDGER"] if "LEDGER" not in os.environ else "$LEDGER"
    return f"export DATABASE_URL={url} HOLDFAST_DATABASE_URL={url} LEDGER={ledger} BROKER_URL={broker}"


if __name__ == "__main__":
    sys.exit(main())

"""`make run SYSTEM=grading`: start grading, print its addresses, keep it up, and stop it on Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from devservices.rabbitmq import RabbitMq
from devservices.server import NotInstalled, free_port, private_file
from systems.common.children import Child
from systems.common.parts import kept_secret
from systems.common.running import (
    child_environment,
    keep_up,
    parser_for,
    python,
    run_system,
    start_all,
    stop_all,
)
from systems.common.servers import kept_up
from systems.grading.samples import speech
from systems.grading.settings import URL_FILE, Settings

_APP = "systems.grading.app:app"
#: Celery runs threads; its process pool would start a process for each slot.
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


def _run(options: argparse.Namespace, stopped: threading.Event) -> int:
    data: Path = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        broker = os.environ.get("BROKER_URL") or stack.enter_context(_private_broker(data / "rabbitmq"))
        environment = _environment(data, broker)
        Settings.read(environment)  # an invalid setting is reported once, not by every child
        children, metrics_ports = _children(options, environment)
        stack.callback(stop_all, children, within=2.0)  # the broker needs the rest
        address = start_all(children, children[0])
        _print_addresses(address, data, options.data, environment, metrics_ports)
        keep_up(children, stopped)
    return 0


@contextlib.contextmanager
def _private_broker(folder: Path) -> Iterator[str]:
    """Run RabbitMQ in *folder*, and yield its address with the password, which is also in a file there."""
    try:
        broker = RabbitMq(folder)
    except NotInstalled as missing:
        raise NotInstalled(f"{missing}, or set BROKER_URL=amqp://…") from None
    with kept_up(broker, stop_within=3.0):
        private_file(folder / URL_FILE, broker.url())
        try:
            yield broker.url()
        finally:
            (folder / URL_FILE).unlink(missing_ok=True)


def _children(options: argparse.Namespace, environment: Mapping[str, str]) -> tuple[list[Child], list[int]]:
    """Return the children, the API first, and the metrics ports of engine, callbacks and Celery workers."""
    listen = ("--host", options.host, "--port", str(options.port))
    first = free_port(2 + options.workers)
    ports = list(range(first, first + 2 + options.workers))
    engine = ("holdfast", "worker", _APP, "--relay", "--metrics-port", str(ports[0]))
    callbacks = ("systems.grading.callbacks", "--metrics-port", str(ports[1]))
    children = [
        python("web", environment, "systems.grading.web", *listen, says_ready=True),
        python("engine", environment, *engine),
        python("callbacks", environment, *callbacks, says_ready=True),
    ]
    if "PROVIDER_URL" not in os.environ:
        port = environment["PROVIDER_URL"].rpartition(":")[2]
        provider = ("systems.provider", "--port", port, "--faults")
        children.append(python("provider", environment, *provider, says_ready=True))
    # Celery warns when it runs as root. Users of a demo know that they are root.
    quiet = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges"}
    for number in range(options.workers):
        name = f"grading{number}@%h"
        own = {**environment, **quiet, "WORKER_METRICS_PORT": str(ports[2 + number])}
        children.append(python(f"worker {number}", own, *_CELERY, "-n", name))
    return children, ports


def _environment(data: Path, broker: str) -> dict[str, str]:
    defaults = {
        "DATABASE_URL": f"sqlite:///{data / 'grading.db'}",
        "AUDIO_DIR": str(data / "audio"),
        "LEDGER": str(data / "grading-ledger.db"),
        "CALLBACK_SECRETS": kept_secret(data / "callback.secret"),
        "PROVIDER_URL": f"http://127.0.0.1:{free_port()}",
    }
    return child_environment(defaults, {"BROKER_URL": broker})


def _print_addresses(
    address: str, data: Path, shown: Path, environment: Mapping[str, str], ports: Sequence[int]
) -> None:
    samples = data / "samples"
    samples.mkdir(exist_ok=True)
    (samples / "speech.wav").write_bytes(speech())
    print(f"ready: {address}")
    print(f"  the page   open {address}/")
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
    print(f"  the data   {data}: submissions, recordings, broker; remove it to start over")
    print("  to stop    Ctrl-C", flush=True)


def _exports(shown: Path, environment: Mapping[str, str]) -> str:
    """Return the shell line that operators' commands need.

    It reads the broker's address, with its password, from a file.
    """
    broker = f"$(cat {shown / 'rabbitmq' / URL_FILE})" if "BROKER_URL" not in os.environ else "$BROKER_URL"
    url = environment["DATABASE_URL"] if "DATABASE_URL" not in os.environ else "$DATABASE_URL"
    ledger = environment["LEDGER"] if "LEDGER" not in os.environ else "$LEDGER"
    return f"export DATABASE_URL={url} HOLDFAST_DATABASE_URL={url} LEDGER={ledger} BROKER_URL={broker}"


if __name__ == "__main__":
    sys.exit(main())

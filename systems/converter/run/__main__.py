"""`make run`: start the converter, print its address, restart its processes, and stop all on Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from devservices.server import free_port
from systems.common.children import Child
from systems.common.running import (
    child_environment,
    data_line,
    env_value,
    find_database,
    keep_up,
    migrate,
    parser_for,
    python,
    run_system,
    start_all,
    stop_all,
    workers,
)

_APP = "systems.converter.app:app"


def main() -> int:
    parser = parser_for("python -m systems.converter.run", __doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    return run_system(parser.parse_args(), _run)


def _run(options: argparse.Namespace, stopped: threading.Event) -> int:
    data: Path = options.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        environment = _environment(data, find_database(stack, data, "converter.db", options.store))
        gateways = _gateways(environment)
        listen = ("--host", options.host, "--port", str(options.port))
        web = python("web", environment, "systems.converter.web", *listen, says_ready=True)
        worker, metrics = workers(_APP, environment, options.workers)
        children = [*gateways, web, worker]
        stack.callback(stop_all, children, last=gateways)
        migrate(_APP, environment)
        address = start_all(children, web)
        _print_addresses(
            address,
            data,
            options.data,
            metrics,
            environment["DATABASE_URL"],
            environment["GATEWAY_URL"] if gateways else None,
        )
        keep_up(children, stopped)
    return 0


def _gateways(environment: Mapping[str, str]) -> list[Child]:
    """Return the gateway, with its fault switch. Return none if the caller runs one already."""
    if env_value("GATEWAY_URL"):
        return []
    port = environment["GATEWAY_URL"].rpartition(":")[2]
    module = ("systems.converter.gateway", "--port", port, "--faults")
    return [python("gateway", environment, *module, says_ready=True)]


def _environment(data: Path, database: Mapping[str, str]) -> dict[str, str]:
    defaults = {
        "UPLOADS_DIR": str(data / "uploads"),
        "RESULTS_DIR": str(data / "results"),
        "SESSION_KEY_FILE": str(data / "session.key"),
    }
    gateway = env_value("GATEWAY_URL") or f"http://127.0.0.1:{free_port()}"
    return child_environment(defaults, {**database, "GATEWAY_URL": gateway})


def _print_addresses(
    address: str, data: Path, shown: Path, metrics: str, database: str, gateway: str | None
) -> None:
    """Write the sample files, and print where everything is.

    *shown* is the data folder as the user gave it.
    """
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
    print(f"  dashboard  {address}/holdfast/ shows every job; sign in with a key:")
    print(f"             DATABASE_URL={database} .venv/bin/holdfast keys create --role admin --app {_APP}")
    print(metrics)
    print(data_line(data, "uploads, results"))
    if gateway is not None:
        print(f"""  an outage  curl -d '{{"status": 502, "seconds": 30}}' {gateway}/faults""")
    print("  to stop    Ctrl-C", flush=True)


def samples_of(shown: Path) -> Path:
    return shown / "samples" / "article.pdf"


if __name__ == "__main__":
    sys.exit(main())

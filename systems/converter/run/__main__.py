"""`make run`: start the converter, say where it is, keep it up, and stop it all within three seconds of Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from pathlib import Path

from systems.common.postgres import PrivatePostgres
from systems.common.running import (
    around,
    free_port,
    keep_up,
    migrate,
    parser_for,
    python,
    run_system,
    start_all,
    stop_all,
    workers,
)


def main() -> int:
    parser = parser_for("python -m systems.converter.run", __doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--faults", action="store_true", help="enable the gateway's fault switch; for tests")
    return run_system(parser.parse_args(), _run)


def _run(given: argparse.Namespace, stopped: threading.Event) -> int:
    data: Path = given.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{data / 'converter.db'}"
        if given.store == "postgres":
            url = stack.enter_context(PrivatePostgres(data / "postgres")).url
        at = free_port()
        environment = _environment(data, url, at)
        faults = ["--faults"] if given.faults else []
        place = ("--host", given.host, "--port", str(given.port))
        gateway = python(
            "gateway", environment, "systems.converter.gateway", "--port", str(at), *faults, says_ready=True
        )
        web = python("web", environment, "systems.converter.web", *place, says_ready=True)
        worker, metrics = workers("systems.converter.app:app", environment, given.workers)
        children = [gateway, web, worker]
        stack.callback(stop_all, children, last=[gateway])
        if given.store == "postgres":
            migrate("systems.converter.app:app", environment)
        address = start_all(children, web)
        _say(address, data, given.data, metrics, at if given.faults else None)
        keep_up(children, stopped)
    return 0


def _environment(data: Path, url: str, gateway_port: int) -> dict[str, str]:
    defaults = {
        "UPLOADS_DIR": str(data / "uploads"),
        "RESULTS_DIR": str(data / "results"),
        "SESSION_KEY_FILE": str(data / "session.key"),
    }
    return around(defaults, {"DATABASE_URL": url, "GATEWAY_URL": f"http://127.0.0.1:{gateway_port}"})


def _say(address: str, data: Path, shown: Path, metrics: str, faults_at: int | None) -> None:
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
    print(metrics)
    print(f"  the data   {data}: jobs, uploads, results; remove it to begin anew")
    if faults_at is not None:
        print(
            f'  the faults curl -d \'{{"status": 502, "seconds": 30}}\' http://127.0.0.1:{faults_at}/faults'
        )
    print("  to stop    Ctrl-C", flush=True)


def samples_of(shown: Path) -> Path:
    return shown / "samples" / "article.pdf"


if __name__ == "__main__":
    sys.exit(main())

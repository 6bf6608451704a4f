"""`make run SYSTEM=reports`: start the reports, print their address, and run them until Ctrl-C.

They stop within 3 s of it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from devservices.server import free_port, private_file
from holdfast import Holdfast
from systems.common.children import Child
from systems.common.running import (
    child_environment,
    data_line,
    env_value,
    find_database,
    keep_up,
    migrate,
    page_key,
    page_line,
    parser_for,
    python,
    run_system,
    start_all,
    stop_all,
    workers,
)
from systems.reports.samples import SAMPLES

_KEY_FILE = "operator.key"
OWNER = "user:demo"


def main() -> int:
    parser = parser_for("python -m systems.reports.run", __doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    return run_system(parser.parse_args(), _run)


def _run(options: argparse.Namespace, stopped: threading.Event) -> int:
    data: Path = options.data.resolve()
    for folder in ("documents", "documents/inbox", "reports", "schemas"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        database = find_database(stack, data, "reports.db", options.store)
        port = free_port()
        environment = _environment(data, database, port)
        models = _models(environment, port)
        place = ("--host", options.host, "--port", str(options.port))
        web = python("web", environment, "systems.reports.web", *place, says_ready=True)
        worker, metrics = workers("systems.reports.app:app", environment, options.workers)
        children = [*models, web, worker]
        stack.callback(stop_all, children, last=models)
        migrate("systems.reports.app:app", environment)
        key = _make_keys(data / _KEY_FILE, database["DATABASE_URL"])
        address = start_all(children, web)
        print(f"ready: {address}")
        print(page_line(address, key))
        _say(address, data, options.data, metrics, port if models else None)
        keep_up(children, stopped)
    return 0


def _models(environment: Mapping[str, str], port: int) -> list[Child]:
    """Return the stand-in model with its fault switch; nothing where the caller sets MODEL_URL."""
    if env_value("MODEL_URL"):
        return []
    module = ("systems.provider", "--port", str(port), "--faults")
    return [python("model", environment, *module, says_ready=True)]


def _environment(data: Path, database: Mapping[str, str], model_port: int) -> dict[str, str]:
    """Return the environment of the children.

    Variables that the caller sets take precedence over these defaults.
    """
    defaults = {
        "DOCUMENTS_URL": str(data / "documents"),
        "REPORTS_URL": str(data / "reports"),
        "SCHEMAS_DIR": str(data / "schemas"),
        "WATCH_URL": str(data / "documents" / "inbox"),
        "WATCH_EVERY_MS": "2000",
        "MODEL_URL": f"http://127.0.0.1:{model_port}/v1",
        "MODEL_PRICE_IN": "0.15",
        "MODEL_PRICE_OUT": "0.60",
    }
    return child_environment(defaults, database)


def _make_keys(file: Path, url: str) -> str:
    """Write a new operator's key to *file*, readable only by its owner, unless the file has a valid key.

    Return a key for the page.
    """
    known = file.read_text().strip() if file.exists() else ""

    async def find_or_create() -> tuple[str, str]:
        async with Holdfast(url) as app:
            page = await page_key(app, OWNER)
            if known and await app.keys.find(known):
                return known, page
            return (await app.keys.create("operator", name="make run"))[1], page

    secret, page = asyncio.run(find_or_create())
    if secret != known:
        private_file(file, secret)
    return page


def _say(address: str, data: Path, shown: Path, metrics: str, faults_at: int | None) -> None:
    for name, text in SAMPLES.items():
        (data / "documents" / name).write_text(text)
    print(f"  the key    export KEY=$(cat {shown / _KEY_FILE})")
    print(
        '  the API    curl -H "authorization: bearer $KEY" -d \'{"source": "invoice-1.txt", "schema": "invoice"}\''
        f" {address}/reports"
    )
    print(f'             curl -H "authorization: bearer $KEY" {address}/reports')
    print(f"  the watch  cp {shown / 'documents' / 'invoice-2.txt'} {shown / 'documents' / 'inbox'}/")
    print(metrics)
    print(data_line(data, "documents, reports, schemas"))
    if faults_at is not None:
        print(
            f"""  an outage  curl -d '{{"status": 503, "seconds": 30}}' http://127.0.0.1:{faults_at}/faults"""
        )
    print("  to stop    Ctrl-C", flush=True)


if __name__ == "__main__":
    sys.exit(main())

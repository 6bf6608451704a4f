"""`python -m systems.provider`: start the stand-in for a model provider."""

from __future__ import annotations

import argparse
import os
import sys

import uvicorn

from systems.converter.serving import Server, listen
from systems.provider.faults import FaultyProtocol
from systems.provider.service import make_app


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.provider", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090, help="0 for any that is free")
    parser.add_argument("--faults", action="store_true", help="enable the fault switch; for tests and demos")
    given = parser.parse_args()
    app = make_app(faults=given.faults, key=os.environ.get("PROVIDER_KEY", ""))
    listening = listen(given.host, given.port, name="provider")
    if listening is None:
        return 1
    config = uvicorn.Config(
        app,
        http=FaultyProtocol if given.faults else "h11",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
    )
    server = Server(config)
    server.run([listening])
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())

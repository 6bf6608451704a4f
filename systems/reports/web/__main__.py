"""`python -m systems.reports.web`: the API of the reports that the environment describes."""

from __future__ import annotations

import argparse
import sys

import uvicorn

from holdfast import HoldfastError
from systems.converter.serving import Server, listen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.reports.web", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    given = parser.parse_args()
    try:
        from systems.reports.app import reports
        from systems.reports.web.site import make_site

        site = make_site(reports)
    except HoldfastError as error:
        print(f"web: {error}", file=sys.stderr)
        return 2
    listening = listen(given.host, given.port, name="web")
    if listening is None:
        return 1
    config = uvicorn.Config(
        site,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody's word on who the client is
        limit_concurrency=1000,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
    )
    server = Server(config)
    server.run([listening])
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())

"""What the services of the systems have in common as servers: one way to serve, and the line that says where."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from holdfast import HoldfastError, UsageError
from holdfast.logs import configure
from holdfast.server import serve as serve_bounded


def serve(app: Any, host: str, port: int, *, name: str) -> int:
    """Serve *app* until SIGTERM or SIGINT, print `ready: ADDRESS` once it answers, and return the exit code."""
    try:
        started = serve_bounded(app, host, port, on_ready=lambda at: print(f"ready: {at}", flush=True))
    except UsageError as error:
        print(f"{name}: {error}{_by_make(port)}", file=sys.stderr)
        return 1
    return 0 if started else 1


def _by_make(port: int) -> str:
    """Return how to choose another port for those who started this by make, which knows no options."""
    return f"; with make: PORT={port + 1 if port < 65_535 else 8000}" if "MAKELEVEL" in os.environ else ""


def serve_site(prog: str, description: str | None, make: Callable[[], Any]) -> int:
    """The site of a system, as the environment describes it; what cannot be read there is one line and exit code 2."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    given = parser.parse_args()
    try:
        configure(keep=True)
        site = make()
    except HoldfastError as error:
        print(f"web: {error}", file=sys.stderr)
        return 2
    return serve(site, given.host, given.port, name="web")

"""Serve a system's ASGI application, and print its address once it is ready."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from holdfast import HoldfastError, UsageError
from holdfast.logging import configure
from holdfast.server import serve as serve_bounded


def serve(app: Any, host: str, port: int, *, name: str) -> int:
    """Serve *app* until SIGTERM or SIGINT and return the exit code.

    Print `ready: ADDRESS` once it answers. A site with streams sets `site.state.on_stop`, which ends them.
    """
    try:
        started = serve_bounded(
            app,
            host,
            port,
            on_ready=lambda at: print(f"ready: {at}", flush=True),
            on_stop=getattr(getattr(app, "state", None), "on_stop", None),
        )
    except UsageError as error:
        print(f"{name}: {error}{_by_make(port)}", file=sys.stderr)
        return 1
    return 0 if started else 1


def _by_make(port: int) -> str:
    """Return how to choose another port with make, which passes on no options. Return "" without make."""
    return f"; with make: PORT={port + 1 if port < 65_535 else 8000}" if "MAKELEVEL" in os.environ else ""


def serve_site(prog: str, description: str | None, make: Callable[[], Any]) -> int:
    """Serve the site that *make* builds from the environment, and return the exit code.

    An invalid setting is printed as one line, with exit code 2.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    options = parser.parse_args()
    try:
        configure(keep=True)
        site = make()
    except HoldfastError as error:
        print(f"web: {error}", file=sys.stderr)
        return 2
    return serve(site, options.host, options.port, name="web")

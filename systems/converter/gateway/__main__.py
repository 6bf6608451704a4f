"""`python -m systems.converter.gateway`: start the gateway."""

from __future__ import annotations

import argparse
import os
import sys

from holdfast.logging import configure
from systems.common.serving import serve
from systems.converter.gateway.limits import Limits
from systems.converter.gateway.service import make_app


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.converter.gateway", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0 for any free port")
    parser.add_argument("--size", type=int, default=os.cpu_count() or 2, help="conversions at the same time")
    parser.add_argument(
        "--waiting", type=int, default=64, help="how many more may wait; beyond that it answers 429"
    )
    parser.add_argument("--seconds", type=int, default=Limits().seconds, help="time limit of a conversion")
    parser.add_argument(
        "--memory-mb", type=int, default=Limits().memory_bytes >> 20, help="memory limit of a conversion"
    )
    parser.add_argument(
        "--faults", action="store_true", help="enable the fault switch; for tests and the tour"
    )
    parser.add_argument(
        "--stalled-seconds", type=int, default=Limits().stalled_seconds, help="the longest pause of an upload"
    )
    options = parser.parse_args()
    if options.size < 1 or options.waiting < 0 or options.seconds < 1 or options.memory_mb < 128:
        parser.error("--size and --seconds are at least 1, --waiting at least 0, --memory-mb at least 128")
    configure(keep=True)
    limits = Limits(
        seconds=options.seconds, memory_bytes=options.memory_mb << 20, stalled_seconds=options.stalled_seconds
    )
    app = make_app(size=options.size, limits=limits, waiting=options.waiting, faults=options.faults)
    return serve(app, options.host, options.port, name="gateway")


if __name__ == "__main__":
    sys.exit(main())

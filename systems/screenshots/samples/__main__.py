"""`python -m systems.screenshots.samples`: serve the sample pages on this machine."""

from __future__ import annotations

import argparse
import sys

from systems.screenshots.samples.server import SampleServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.screenshots.samples", description=__doc__)
    parser.add_argument("--port", type=int, default=8001, help="0 for any free port")
    options = parser.parse_args()
    try:
        server = SampleServer(options.port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        print(
            f"samples: port {options.port} cannot be opened: {reason}; choose another with --port",
            file=sys.stderr,
        )
        return 1
    print(f"ready: {server.url}", flush=True)
    try:
        server.serve()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())

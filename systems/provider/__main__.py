"""`python -m systems.provider`: start the stand-in for a model provider."""

from __future__ import annotations

import argparse
import os
import sys

from systems.common.serving import serve
from systems.provider.service import make_app


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.provider", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090, help="0 for any that is free")
    parser.add_argument("--faults", action="store_true", help="enable the fault switch; for tests and demos")
    options = parser.parse_args()
    app = make_app(faults=options.faults, key=os.environ.get("PROVIDER_KEY", ""))
    return serve(app, options.host, options.port, name="provider")


if __name__ == "__main__":
    sys.exit(main())

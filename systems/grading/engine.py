"""`python -m systems.grading.engine`: duties and relay in one process, which is all that the main app needs beside its API.

The same as `holdfast worker` and `holdfast relay` of systems.grading.app:app; any number of any of them may run.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast import HoldfastError
from holdfast.logs import configure


def main() -> int:
    try:
        from systems.grading.app import app

        configure(keep=True)
        asyncio.run(app.run_worker(handle_signals=True, relay=True))
    except HoldfastError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

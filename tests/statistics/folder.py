"""Fold in a process of its own, which can be killed: python -m tests.statistics.folder URL [kill]."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from holdfast.statistics import folding, table
from holdfast.wiring import SystemClock, make_store


async def main(url: str, *, kill: bool) -> None:
    """Fold until killed; with *kill* end by SIGKILL when the figures are written and not committed."""
    store = make_store(url, SystemClock(), None)
    await store.open()
    folding.ROWS, folding.READS = 7, 2  # many small transactions
    real = table.add

    async def add_and_die(*given: Any) -> None:
        await real(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    if kill:
        vars(table)["add"] = add_and_die
    print("folding", flush=True)
    while True:
        await folding.fold(store)
        await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], kill="kill" in sys.argv))

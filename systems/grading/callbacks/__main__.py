"""`python -m systems.grading.callbacks`: bring what workers say to the engine. Any number of these may run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from holdfast import HoldfastError
from holdfast.logs import configure
from systems.grading.logs import hush_drivers


async def _run() -> None:
    from systems.grading.app import grading
    from systems.grading.callbacks.consuming import consume

    ready = asyncio.Event()
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    if not grading.settings.callback_secrets:
        raise SystemExit(
            "callbacks: CALLBACK_SECRETS is not set; give it the secret that the workers sign with"
        )
    async with grading.app, asyncio.TaskGroup() as group:
        group.create_task(consume(grading, ready=ready))
        await ready.wait()
        print("ready: callbacks", flush=True)


def main() -> int:
    try:
        configure(keep=True)
        hush_drivers()
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(_run())
    except HoldfastError as error:
        print(f"callbacks: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

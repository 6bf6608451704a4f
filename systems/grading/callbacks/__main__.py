"""`python -m systems.grading.callbacks`: apply the callbacks of workers.

Any number of these processes may run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys

from holdfast import HoldfastError
from holdfast.logging import configure
from systems.grading.logs import silence_drivers


async def _run(metrics_port: int | None) -> None:
    from systems.grading.app import grading
    from systems.grading.callbacks.consumer import consume

    ready = asyncio.Event()
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    if not grading.settings.callback_secrets:
        raise SystemExit(
            "callbacks: CALLBACK_SECRETS is not set; set it to the secret that the workers sign with"
        )
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(grading.app)
        if metrics_port is not None:
            await stack.enter_async_context(grading.app.metrics.serve(metrics_port))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(consume(grading, ready=ready))
        await ready.wait()
        print("ready: callbacks", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m systems.grading.callbacks", description=__doc__)
    parser.add_argument("--metrics-port", type=int, help="serve /metrics on this port of 127.0.0.1")
    options = parser.parse_args()
    try:
        configure(keep=True)
        silence_drivers()
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(_run(options.metrics_port))
    except HoldfastError as error:
        print(f"callbacks: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

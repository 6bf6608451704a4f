"""`python -m benchmarks.throttled`: run reports whose model answers half of the calls with 429 for a while.

Printed at the end: how many calls were made within a Retry-After of the model, and how long after the last of
these waits the reports were as fast as before. Uses two real workers and a private PostgreSQL, and calls
nothing outside this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from devservices.postgres import Postgres
from systems.reports.samples import invoice
from systems.reports.settings import Settings
from systems.reports.tasks import build
from tests.systems.provider.providers import ROOT, RunningProvider

#: A call that the other worker made this soon after a refusal may have been in flight, in seconds.
IN_FLIGHT = 0.25


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throttled", description=__doc__)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--after", type=int, default=10, help="the seconds of Retry-After")
    parser.add_argument("--seconds", type=int, default=25, help="how long half of the calls get a 429")
    parser.add_argument("--latency-ms", type=int, default=100, help="of each call")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, provider = stack.enter_context(Postgres()), stack.enter_context(RunningProvider())
        return asyncio.run(_run(options, folder, server.create_database("reports"), provider))


async def _run(options: argparse.Namespace, folder: Path, url: str, provider: RunningProvider) -> int:
    for name in ("documents", "out"):
        (folder / name).mkdir()
    for number in range(options.documents):
        (folder / "documents" / f"{number}.txt").write_text(invoice(number))
    settings = {
        "DATABASE_URL": url,
        "DOCUMENTS_URL": str(folder / "documents"),
        "REPORTS_URL": str(folder / "out"),
        "MODEL_URL": f"{provider.url}/v1",
        "RETRY_MAX_ATTEMPTS": "50",
        "HOLDFAST_LOG_LEVEL": "error",
    }
    reports = build(Settings.read(settings))
    await reports.app.migrate()
    async with reports.app as app:
        calls = [{"source": f"{n}.txt", "schema": "invoice"} for n in range(options.documents)]
        await reports.report.enqueue_many(calls)
        provider.fault(latency_ms=options.latency_ms)
        workers = [_start_worker(settings) for _ in range(2)]
        try:
            await _until(lambda: _answered(provider) >= options.documents // 10)
            throttled = time.monotonic()
            provider.fault(
                status=429,
                retry_after=options.after,
                percent=50,
                latency_ms=options.latency_ms,
                seconds=options.seconds,
            )
            await asyncio.sleep(options.seconds)
            provider.fault(latency_ms=options.latency_ms)
            await _until(lambda: _answered(provider) >= options.documents)
            counts = await app.jobs.counts()
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
    return _report(options, provider.calls(), throttled, counts)


def _start_worker(settings: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "worker", "systems.reports.app:app"]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | settings)


def _answered(provider: RunningProvider) -> int:
    return sum(call["status"] == 200 for call in provider.calls())


async def _until(condition: Any, seconds: float = 600.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise SystemExit("this takes too long: the reports are stuck, or the machine is slow")
        await asyncio.sleep(0.5)


def _report(
    options: argparse.Namespace, calls: list[dict[str, Any]], throttled: float, counts: dict[str, int]
) -> int:
    """Print the figures, and return 0 if the targets are met.

    The model is on this machine, and reports the monotonic time at which each call started.
    """
    good = sorted(call["at"] for call in calls if call["status"] == 200)
    refusals = sorted(call["at"] + options.latency_ms / 1000 for call in calls if call["status"] == 429)
    inside = [
        call["at"]
        for call in calls
        if any(refused + IN_FLIGHT < call["at"] < refused + options.after - 0.05 for refused in refusals)
    ]
    before = [at for at in good if at < throttled]
    rate = len(before) / max(0.001, throttled - before[0])
    last = refusals[-1] + options.after
    full = next(
        (at for at in good if sum(at - 1 <= other < at for other in good) >= 0.8 * rate and at > last), None
    )
    recovered = None if full is None else max(0.0, full - 1 - last)
    print(
        f"calls            {len(calls):,}: {len(good):,} answered, {len(refusals):,} told to wait {options.after} s"
    )
    print(f"inside a wait    {len(inside)} calls (target: none)")
    print(f"before           {rate:.0f} reports a second")
    print(f"recovered after  {'never' if recovered is None else f'{recovered:.1f} s'} (target: at most 5 s)")
    print(f"states           {counts}")
    return 0 if not inside and recovered is not None and recovered <= 5 else 1


if __name__ == "__main__":
    sys.exit(main())

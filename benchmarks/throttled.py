"""`python -m benchmarks.throttled`: reports whose model answers 429 with Retry-After to half of the calls, for a while.

Told at the end: how many calls were begun inside a wait that the model had stated, and how soon after the last of these waits the
reports went on as quickly as before. Two real workers, a private PostgreSQL; nothing outside of this machine is called.
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

from systems.reports.samples import invoice
from systems.reports.settings import Settings
from systems.reports.tasks import build
from tests.services.postgres import Postgres
from tests.systems.provider.providers import ROOT, RunningProvider

#: A call of the other worker may be on its way when the answer comes that states the wait.
ON_ITS_WAY = 0.25


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throttled", description=__doc__)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--after", type=int, default=10, help="the seconds of Retry-After")
    parser.add_argument("--seconds", type=int, default=25, help="how long half of the calls are answered so")
    parser.add_argument("--latency-ms", type=int, default=100, help="of each call")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server, provider = stack.enter_context(Postgres()), stack.enter_context(RunningProvider())
        return asyncio.run(_run(given, folder, server.create_database("reports"), provider))


async def _run(given: argparse.Namespace, folder: Path, url: str, provider: RunningProvider) -> int:
    for name in ("documents", "out"):
        (folder / name).mkdir()
    for number in range(given.documents):
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
        calls = [{"source": f"{n}.txt", "schema": "invoice"} for n in range(given.documents)]
        await reports.report.enqueue_many(calls)
        provider.fault(latency_ms=given.latency_ms)
        workers = [_start_worker(settings) for _ in range(2)]
        try:
            await _until(lambda: _answered(provider) >= given.documents // 10)
            throttled = time.monotonic()
            provider.fault(
                status=429,
                retry_after=given.after,
                percent=50,
                latency_ms=given.latency_ms,
                seconds=given.seconds,
            )
            await asyncio.sleep(given.seconds)
            provider.fault(latency_ms=given.latency_ms)
            await _until(lambda: _answered(provider) >= given.documents)
            counts = await app.counts()
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
    return _tell(given, provider.calls(), throttled, counts)


def _start_worker(settings: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "worker", "systems.reports.app:app"]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | settings)


def _answered(provider: RunningProvider) -> int:
    return sum(call["status"] == 200 for call in provider.calls())


async def _until(is_so: Any, seconds: float = 600.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit("this takes too long: nothing moves, or the machine is slow")
        await asyncio.sleep(0.5)


def _tell(
    given: argparse.Namespace, calls: list[dict[str, Any]], throttled: float, counts: dict[str, int]
) -> int:
    """The model is on this machine, and tells the monotonic moment at which each call began."""
    good = sorted(call["at"] for call in calls if call["status"] == 200)
    refusals = sorted(call["at"] + given.latency_ms / 1000 for call in calls if call["status"] == 429)
    inside = [
        call["at"]
        for call in calls
        if any(told + ON_ITS_WAY < call["at"] < told + given.after - 0.05 for told in refusals)
    ]
    before = [at for at in good if at < throttled]
    rate = len(before) / max(0.001, throttled - before[0])
    last = refusals[-1] + given.after
    full = next(
        (at for at in good if sum(at - 1 <= other < at for other in good) >= 0.8 * rate and at > last), None
    )
    recovered = None if full is None else max(0.0, full - 1 - last)
    print(
        f"calls            {len(calls):,}: {len(good):,} answered, {len(refusals):,} told to wait {given.after} s"
    )
    print(f"inside a wait    {len(inside)} calls (none may be)")
    print(f"before           {rate:.0f} reports a second")
    print(f"recovered after  {'never' if recovered is None else f'{recovered:.1f} s'} (at most 5 s)")
    print(f"states           {counts}")
    return 0 if not inside and recovered is not None and recovered <= 5 else 1


if __name__ == "__main__":
    sys.exit(main())

"""A disk that fails now and then: strace answers the nth write or sync of the SQLite file with EIO."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

import pytest

from tests.e2e.faults.test_sqlite_file import integrity
from tests.e2e.faults.world import ROOT, Site

pytestmark = pytest.mark.slow

#: Tells of each call whether it was acknowledged, and goes on whatever happens.
ENQUEUER = """
import asyncio, sys
from holdfast.errors import StoreError
from tests.e2e.faults.app import make_app
app = make_app(sys.argv[1])
echo = app.tasks["echo"]

def sync(value):
    try:
        print("kept sync", echo.enqueue_sync(value=value).id)
    except StoreError as error:
        print("refused sync", error)

async def one(value):
    try:
        print("kept async", (await echo.enqueue(value=value)).id)
    except StoreError as error:
        print("refused async", error)

async def many():
    async with app:
        for value in range(0, 60, 4):
            await asyncio.gather(*(one(value + n) for n in range(4)))

for value in range(60):
    sync(value)
asyncio.run(many())
"""


@functools.cache
def strace() -> str:
    program = shutil.which("strace")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true: no strace on this machine: run `tools/system`")
        pytest.skip("no strace on this machine: run `tools/system`")
    tried = subprocess.run([program, "-f", "-o", "/dev/null", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no process may be traced here: {tried.stderr.strip()[-100:]}")
    return program


def failing_disk(site: Site, call: str, when: str) -> list[str]:
    """The command under which a process finds that these calls fail, for any file of the database."""
    database = site.url.removeprefix("sqlite:///")
    command = [strace(), "-f", "--seccomp-bpf", "-s", "0", "-o", str(site.folder / "strace")]
    for path in (database, f"{database}-wal"):
        command += ["-P", path]
    return [*command, "-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={when}"]


def failures(site: Site) -> int:
    """How many calls have failed so far."""
    return (site.folder / "strace").read_text(errors="replace").count("(INJECTED)")


@pytest.mark.parametrize(("call", "when"), [("fdatasync", "2+3"), ("pwrite64", "3+11"), ("pwrite64", "8+8")])
async def test_a_job_is_not_acknowledged_when_the_disk_failed(
    sqlite_site: Site, call: str, when: str
) -> None:  # E5 E50
    site = sqlite_site
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    run = subprocess.run(
        [*failing_disk(site, call, when), sys.executable, "-c", ENQUEUER, site.url],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    told = [line.split(" ", 2) for line in run.stdout.splitlines()]
    kept = [rest for what, _, rest in told if what == "kept"]
    refused = [rest for what, _, rest in told if what == "refused"]
    assert len(kept) + len(refused) == 120
    assert failures(site) >= 6
    assert {way for what, way, _ in told if what == "refused"} == {"sync", "async"}
    assert set(refused) == {"the disk failed while writing jobs.db; nothing was stored"}
    stored = [event.job_id for event in await site.all_events() if event.kind == "queued"]
    assert sorted(stored) == sorted(kept)  # what was refused is not there either, as it was told
    assert (await site.app.jobs.counts())["queued"] == len(kept)
    assert integrity(site) == "ok"
    assert await (await site.store()).queries.violations() == []


@pytest.mark.parametrize(("call", "when"), [("fdatasync", "6+9"), ("pwrite64", "50+97")])
async def test_a_worker_on_a_failing_disk_loses_and_doubles_nothing(
    sqlite_site: Site, call: str, when: str
) -> None:  # E5 E50
    site = sqlite_site
    ids = await site.enqueue_many("flaky", [{"value": n} for n in range(40)])
    worker = site.worker(
        "--until-idle", "--concurrency", "4", under=failing_disk(site, call, when), lease="20s"
    )
    assert await worker.ended() == 0, worker.log[-2000:]
    assert failures(site) >= 3
    assert not worker.has_traceback
    assert worker.told("settlement.retrying") or worker.told("claim.retrying")
    rows = [await site.app.jobs.get(one) for one in ids]
    assert {(row.state, row.crashes) for row in rows} == {("complete", 0)}
    await site.consistent(ids)
    assert integrity(site) == "ok"


async def test_a_worker_killed_on_a_failing_disk_leaves_every_job_to_the_next(
    sqlite_site: Site,
) -> None:  # E5 E50
    site = sqlite_site
    ids = await site.enqueue_many("flaky", [{"value": n} for n in range(40)])
    worker = site.worker("--concurrency", "4", under=failing_disk(site, "fdatasync", "5+9"))
    await site.started(ids[-1])
    worker.kill()
    assert failures(site) >= 1
    assert integrity(site) == "ok"
    assert await site.worker("--until-idle").ended() == 0
    assert (await site.app.jobs.counts())["complete"] == len(ids)
    await site.consistent(ids)

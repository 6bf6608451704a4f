"""One SQLite file under pressure: locked by others, full disks, writers killed in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from holdfast.cli.exit_codes import DATABASE
from holdfast.errors import StoreError, StoreUnavailable
from holdfast.server import api
from tests.commands import run_command
from tests.e2e.faults.world import PATIENT, ROOT, Site, eventually

pytestmark = pytest.mark.slow

#: Enqueues until it is done or killed; a line for each job that was acknowledged.
WRITER = """
import sys
from tests.e2e.faults.app import make_app
app = make_app(sys.argv[1])
for value in range(int(sys.argv[2])):
    print(app.tasks["echo"].enqueue_sync(value=value).id, flush=True)
"""
HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
db.execute("COMMIT")
"""


def python(script: str, *arguments: str, out: Path | None = None) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    with out.open("w") if out else contextlib.nullcontext(subprocess.PIPE) as stdout:
        return subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=stdout,
            text=True,
        )


def acknowledged(out: Path) -> list[str]:
    """Whole lines only: the last one may have been cut by the kill."""
    return [line for line in out.read_text().split("\n")[:-1] if len(line) == 36]


def integrity(site: Site) -> str:
    database = sqlite3.connect(site.url.removeprefix("sqlite:///"))
    try:
        return str(database.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        database.close()


async def test_a_lock_held_for_two_seconds_is_waited_for(sqlite_site: Site) -> None:  # E50
    site = sqlite_site
    running = await site.enqueue("gate", name="open")
    [worker] = await site.crew(1, lease="10s", heartbeat="500ms")
    await site.started(running)
    holder = python(HOLDER, site.url.removeprefix("sqlite:///"), "2")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    site.flag("open")  # its end has to wait as well
    ids = await asyncio.gather(*(site.enqueue("echo", value=n) for n in range(5)))
    ids.append(await asyncio.to_thread(lambda: site.app.tasks["echo"].enqueue_sync(value=5).id))
    holder.communicate()
    await site.drained()
    assert await site.kinds(running) == ["queued", "processing", "complete"]
    await site.consistent([running, *ids])
    assert not worker.told("session.lost")
    assert not worker.told("settlement.retrying")
    assert not worker.has_traceback


async def test_four_processes_enqueue_at_once_and_none_is_lost(sqlite_site: Site) -> None:  # E50
    site = sqlite_site
    outs = [site.folder / f"acknowledged-{n}" for n in range(4)]
    writers = [python(WRITER, site.url, "500", out=out) for out in outs]
    await eventually(lambda: all(writer.poll() is not None for writer in writers), "the writers to end", 55)
    assert [writer.returncode for writer in writers] == [0] * 4
    ids = {line for out in outs for line in acknowledged(out)}
    assert len(ids) == 2000
    assert (await site.app.jobs.counts())["queued"] == 2000
    assert sorted(event.job_id for event in await site.all_events()) == sorted(ids)


async def test_writers_killed_in_the_middle_leave_a_whole_file_and_every_acknowledged_job(
    sqlite_site: Site,
) -> None:  # E5 E50
    site, chance, ids = sqlite_site, random.Random(3), list[str]()
    for turn in range(5):
        outs = [site.folder / f"acknowledged-{turn}-{n}" for n in range(4)]
        writers = [python(WRITER, site.url, "100000", out=out) for out in outs]
        await eventually(lambda outs=outs: any(map(acknowledged, outs)), "a writer to write")  # type: ignore[misc]
        for writer in writers:
            await asyncio.sleep(chance.uniform(0.0, 0.15))
            writer.kill()
        for writer in writers:
            writer.wait()
        ids += [line for out in outs for line in acknowledged(out)]
        assert integrity(site) == "ok"
    assert await (await site.store()).queries.violations() == []
    stored = {event.job_id for event in await site.all_events() if event.kind == "queued"}
    assert set(ids) <= stored
    assert (await site.app.jobs.counts())["queued"] == len(stored)
    assert len(stored) - len(ids) <= 4 * 5  # at most one without its answer for each kill


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as out:
        for size in (65536, 512, 1):
            try:
                while out.write(b"x" * size):
                    pass
            except OSError:
                continue
    return filler


async def until_full(site: Site, ids: list[str]) -> StoreUnavailable:
    """Enqueue until the disk is full: there may be room in pages that are there already."""
    while True:
        try:
            ids.append(await site.enqueue("echo", value=len(ids)))
        except StoreUnavailable as error:
            return error


async def test_a_full_disk_is_told_and_nothing_is_half_stored(
    small_disk: Path, tmp_path: Path
) -> None:  # E5 E50
    async with Site(f"sqlite:///{small_disk / 'jobs.db'}", tmp_path) as site:
        running = await site.enqueue("gate", name="open")
        [worker] = await site.crew(1, **PATIENT)
        await site.started(running)
        filler, ids = fill(small_disk), list[str]()
        full = await until_full(site, ids)
        assert str(full) == "no space is left to write jobs.db; nothing was stored, free some and try again"
        command = [sys.executable, "-m", "holdfast", "jobs", "cancel", running, "--url", site.url]
        refused = await asyncio.to_thread(run_command, command, cwd=ROOT, env=dict(os.environ))
        assert (refused.returncode, refused.stderr) == (DATABASE, f"holdfast: {full}\n")
        reaching = httpx2.ASGITransport(api(site.app, without_key="loopback"), client=("127.0.0.1", 5000))
        async with httpx2.AsyncClient(transport=reaching, base_url="http://127.0.0.1") as client:
            answer = await client.post(f"/api/v1/jobs/{running}/cancel")
        assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
        assert (await site.app.jobs.get(running)).state == "processing"
        site.flag("open")
        await eventually(
            lambda: worker.told("settlement.retrying") or worker.told("heartbeat.missed"),
            "the worker to notice",
        )
        assert worker.process.poll() is None
        filler.unlink()
        ids.append(await site.enqueue("echo", value=-1))
        await site.drained()
        assert worker.process.poll() is None
        assert not worker.has_traceback
        await site.consistent([running, *ids])
        stored = {event.job_id for event in await site.all_events() if event.kind == "queued"}
        assert stored == {running, *ids}
        assert integrity(site) == "ok"


async def test_a_write_that_the_system_refuses_is_an_error_and_not_a_job(sqlite_site: Site) -> None:  # E50
    """A limit on the size of files, in a process of its own: it cannot be lifted for this one."""
    script = """
import json, resource, sys
from holdfast.errors import StoreError
from tests.e2e.faults.app import make_app
app = make_app(sys.argv[1])
echo, kept, said = app.tasks["echo"], [], None
kept.append(echo.enqueue_sync(value=0).id)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
try:
    for value in range(10_000):
        kept.append(echo.enqueue_sync(value=value).id)
except StoreError as error:
    said = str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
kept.append(echo.enqueue_sync(value=0).id)
print(json.dumps([said, kept]))
"""
    out, _ = await asyncio.to_thread(python(script, sqlite_site.url).communicate)
    said, kept = json.loads(out)
    assert said == "the disk failed while writing jobs.db; nothing was stored"
    assert {event.job_id for event in await sqlite_site.all_events()} == set(kept)
    assert integrity(sqlite_site) == "ok"


async def test_a_file_that_is_not_ours_is_refused_by_a_worker_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(
        b"This is not a database, only a text that is long enough to be read." * 50
    )
    site = Site(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)
    with pytest.raises(StoreError, match="not a database"):
        await site.app.runtime.engine()
    worker = site.worker()
    assert await worker.ended() == 5
    [line] = worker.log.splitlines()
    assert "not a database" in line

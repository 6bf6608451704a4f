"""The power is cut while jobs are enqueued and run on SQLite: what was acknowledged is there when it comes back (E5, E50)."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.e2e.faults.power import FATES, Call, Disk, read, tracing
from tests.e2e.faults.test_disk_errors import strace
from tests.e2e.faults.world import ROOT, Site
from tests.simulation.places import quick_folder

pytestmark = pytest.mark.slow

CUTS = 120
#: Says of each job when it was acknowledged and when its result was there; now and then what is in the WAL is brought home.
#: *wait*: whether commits wait for the disk, as Holdfast has it.
WRITER = """
import asyncio, os, sqlite3, sys
from tests.e2e.faults.app import make_app
database, acknowledged, wait = sys.argv[1:]
said = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
if wait == "no":
    from holdfast.stores.sqlite.connection import Connection
    execute = Connection.execute
    Connection.execute = lambda self, sql, *rest: execute(self, sql.replace("synchronous = FULL", "synchronous = NORMAL"), *rest)
app = make_app(f"sqlite:///{database}", lease="3s")

async def one(value):
    handle = await app.tasks["flaky"].enqueue(value=value)
    os.write(said, f"kept {handle.id}\\n".encode())
    await handle.result(timeout="30s")
    os.write(said, f"complete {handle.id}\\n".encode())

async def many():
    async with app:
        working = asyncio.create_task(app.run_worker())
        home = sqlite3.connect(database)
        for value in range(0, 40, 4):
            await asyncio.gather(*(one(value + place) for place in range(4)))
            if value % 12 == 8:
                home.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        os._exit(0)

asyncio.run(many())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


async def recorded(site: Site, wait: str) -> tuple[Disk, Path, list[Call]]:
    """A run of the writer: its disk, its database and what it said."""
    await site.app.close()  # brings everything home: from here on only the writer writes
    database = Path(site.url.removeprefix("sqlite:///"))
    said, record = site.folder / "said", site.folder / "record"
    before = {str(database): database.read_bytes()}
    paths = (database, Path(f"{database}-wal"), said, site.folder)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    run = subprocess.run(
        [*tracing(strace(), record, paths), sys.executable, "-c", WRITER, str(database), str(said), wait],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    calls = read(record)
    words = [call for call in calls if call.path == str(said) and call.name == "write"]
    files = [call for call in calls if call.path != str(said)]
    return Disk(str(site.folder), before, files), database, words


def moments(disk: Disk, words: list[Call], chance: Random) -> list[int]:
    """Around every kind of call: just after a word was given, within a sync, and anywhere."""
    told = [word.ended + 1 for word in words]
    syncs = [
        at
        for call in disk.calls
        if call.name == "sync"
        for at in (call.begun, call.begun + 1, call.ended + 1)
    ]
    anywhere = [call.begun + 1 for call in disk.calls]
    return sorted(
        moment
        for kind in (told, syncs, anywhere)
        for moment in chance.sample(kind, min(CUTS // 3, len(kind)))
    )


def losses(files: dict[str, bytes], database: Path, folder: Path, told: list[str]) -> list[str]:
    """Open what is left, as after the power has come back: what was acknowledged and is not there."""
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / Path(name).name).write_bytes(data)
    found = sqlite3.connect(folder / database.name)
    try:
        assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = dict(found.execute("SELECT uid, phase FROM holdfast_job").fetchall())
    finally:
        found.close()
    lost = []
    for word in told:
        what, job_id = word.split()
        if job_id not in rows or (what == "complete" and rows[job_id] != 3):
            lost.append(word)
    return lost


def cut_everywhere(disk: Disk, database: Path, words: list[Call], folder: Path) -> tuple[int, list[str]]:
    """How many cuts there were, and what was lost by any of them."""
    chance, cuts, lost = Random(1), 0, list[str]()
    for moment in moments(disk, words, chance):
        told = [word.data.decode().strip() for word in words if word.begun < moment]
        for name, fate in FATES.items():
            left = disk.after_a_cut(moment, fate, chance)
            lost += [f"{word} (cut at {moment}, {name})" for word in losses(left, database, folder, told)]
            cuts += 1
    return cuts, lost


async def test_nothing_acknowledged_is_lost_by_a_power_cut(sqlite_site: Site, folder: Path) -> None:  # E5 E50
    disk, database, words = await recorded(sqlite_site, "yes")
    assert len(words) == 80
    home = [call for call in disk.calls if call.name == "pwrite64" and call.path == str(database)]
    assert home  # the record has checkpoints in it
    cuts, lost = cut_everywhere(disk, database, words, folder)
    assert lost == []
    assert cuts >= 300


def running(database: Path) -> int:
    """How many jobs a worker of the time before the cut holds."""
    with closing(sqlite3.connect(database)) as found:
        counted: int = found.execute("SELECT count(*) FROM holdfast_job WHERE phase = 2").fetchone()[0]
    return counted


async def test_after_a_power_cut_the_work_goes_on(sqlite_site: Site, folder: Path) -> None:  # E5 E30 E50
    disk, database, words = await recorded(sqlite_site, "yes")
    home = folder / database.name
    for word in words[len(words) // 2 :]:
        left = disk.after_a_cut(word.ended + 1, FATES["some arrive in part"], Random(2))
        assert losses(left, database, folder, []) == []
        if running(home):
            break
    assert running(home)
    acknowledged = [other.data.decode().split() for other in words if other.begun <= word.begun]
    async with Site(f"sqlite:///{home}", sqlite_site.folder) as site:
        assert await site.worker("--until-idle").ended() == 0
        ids = {job_id for _, job_id in acknowledged}
        assert {(await site.app.jobs.get(one)).state for one in ids} == {"complete"}
        await site.consistent(ids)


async def test_these_cuts_would_show_commits_that_do_not_wait_for_the_disk(
    sqlite_site: Site, folder: Path
) -> None:  # E50
    disk, database, words = await recorded(sqlite_site, "no")
    _, lost = cut_everywhere(disk, database, words, folder)
    assert lost

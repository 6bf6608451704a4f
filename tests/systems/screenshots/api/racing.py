"""`python -m tests.systems.screenshots.api.racing --retries 10000`: people against the scheduler, the sweep and the hangman.

Clients ask for pictures and retry whatever they find, by HTTP; worker processes run them and are killed; stuck sweeps take jobs
from attempts that still run. Then everything is let come to its end, and the record is audited: exactly one run for each
retry that was accepted, no run without a reason, the ledger balanced to the last credit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from devservices.postgres import Postgres
from holdfast import Holdfast
from holdfast.contrib.credits import Credits
from holdfast.records import Event
from tests.systems.screenshots.api.racer import make_world
from tests.systems.screenshots.api.world import ADMIN, World, eventually

ROOT = Path(__file__).parents[4]
CREDITS = 1_000_000
CLIENTS, WORKERS = 8, 2
OPEN_JOBS = 40  #: so many are kept under way


@dataclass
class Race:
    """What was done, and what came of it."""

    jobs: list[str] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    swept: int = 0
    taken: int = 0  #: from attempts that were stuck, by retries
    kills: int = 0
    problems: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def accepted(self) -> int:
        return self.answers[200]


class Workers:
    """Processes that are killed and started again."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "RACE_FOLDER": str(folder),
            "HOLDFAST_LOG_LEVEL": "critical",
        }
        self._seeds = iter(range(1, 1_000_000))
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "worker", "tests.systems.screenshots.api.racer:app"]
        environment = self._environment | {"RACE_SEED": str(next(self._seeds))}
        self._running.append(subprocess.Popen(command, cwd=ROOT, env=environment))

    def kill_one(self, chance: random.Random) -> None:
        victim = self._running.pop(chance.randrange(len(self._running)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.start()

    def close(self) -> None:
        for one in self._running:
            one.terminate()
        for one in self._running:
            with suppress(subprocess.TimeoutExpired):
                one.wait(10)
            one.kill()
            one.wait()


async def race(folder: Path, database_url: str, *, retries: int, kills: int, seed: int = 1) -> Race:
    """Until so many retries were accepted and so many workers were killed."""
    done, world = Race(), make_world(folder, database_url, 0)
    async with world.open(works=False, credits=CREDITS):
        workers = Workers(folder, database_url)
        try:
            for _ in range(WORKERS):
                workers.start()
            async with asyncio.TaskGroup() as group:
                for number in range(CLIENTS):
                    group.create_task(_click(world, done, random.Random(seed * 1000 + number), retries))
                group.create_task(_sweep(world, done, retries))
                group.create_task(_kill(workers, done, random.Random(seed), retries, kills))
            await _settle(world)
        finally:
            await asyncio.to_thread(workers.close)
        await _audit(world, done)
    return done


async def _click(world: World, done: Race, chance: random.Random, retries: int) -> None:
    recent: list[str] = []
    while done.accepted < retries:
        if len(recent) < OPEN_JOBS // CLIENTS or chance.random() < 0.1:
            recent.append(await world.shot(url=f"https://n{len(done.jobs)}.example.com/x"))
            done.jobs.append(recent[-1])
        recent = recent[-OPEN_JOBS // CLIENTS :]
        # Mostly one's own, so that there is something to retry; at times anybody's, so that two are after the same.
        job_id = chance.choice(done.jobs[-OPEN_JOBS:] if chance.random() < 0.5 else recent)
        answer = await world.retry(job_id)
        done.answers[answer.status_code] += 1
        if answer.status_code not in (200, 400, 409):
            done.problems.append(f"a retry was answered by {answer.status_code}: {answer.text[:200]}")
        await asyncio.sleep(chance.random() * 0.02)


async def _sweep(world: World, done: Race, retries: int) -> None:
    while done.accepted < retries:
        answer = await world.ask("operator", "POST", f"{ADMIN}/jobs/process-stuck", {"longer_than": "300ms"})
        done.swept += answer.json()["processed"]
        await asyncio.sleep(0.1)


async def _kill(workers: Workers, done: Race, chance: random.Random, retries: int, kills: int) -> None:
    """Spread over the race; what is left of them at its end is not made up for."""
    while done.accepted < retries and done.kills < kills:
        if done.accepted * (kills + 1) >= retries * (done.kills + 1):
            await asyncio.to_thread(workers.kill_one, chance)
            done.kills += 1
        await asyncio.sleep(0.02)


async def _settle(world: World) -> None:
    async def is_still() -> bool:
        return not await world.app.jobs.count(queue="screenshots", state=["queued", "processing"])

    await eventually(is_still, every=0.05, within=120)


# -- the audit --------------------------------------------------------------------------------------------------------
#: What puts a job into line, and what an attempt comes to without one.
_INTO_LINE = frozenset({"queued", "retry", "reclaimed", "released", "snoozed"})
_ENDS = frozenset({"complete", "failed"})


def misplaced(events: list[Event]) -> list[str]:
    """What in the life of one job is not as it must be; a line each. Every run has one reason, every reason one run."""
    problems, waits, runs, asked = [], False, False, False
    for event in events:
        match event.kind:
            case "processing":
                if not waits or runs:
                    problems.append(f"run {event.epoch} has no reason of its own")
                waits, runs, asked = False, True, False
            case "manual_retry":
                if runs:
                    problems.append("a retry was accepted while it ran")
                if asked:
                    problems.append("a retry was accepted before the one before it had run")
                waits = asked = True
            case kind if kind in _INTO_LINE:
                if waits:
                    problems.append(f"it was put into line twice: {kind}")
                waits, runs = True, False
            case kind if kind in _ENDS:
                if waits:
                    problems.append(f"it ended ({kind}) while it waited")
                runs = False
    if waits or runs:
        problems.append("it has not come to its end")
    return problems


async def _audit(world: World, done: Race) -> None:
    app = world.app
    complete = 0
    for job_id in done.jobs:
        events = await app.events.list(job_id=job_id)
        kinds = Counter(event.kind for event in events)
        done.kinds += kinds
        done.taken += sum(e.kind == "reclaimed" and "(key ann)" in e.meta.get("by", "") for e in events)
        complete += kinds["complete"]
        if kinds["complete"] > 1:
            done.problems.append(f"{job_id} is complete {kinds['complete']} times")
        done.problems += [f"{job_id}: {line}" for line in misplaced(events)]
    runs = sum(path.stat().st_size for path in world.folder.glob("runs-*"))
    _expect(done, done.kinds["manual_retry"] == done.accepted, "retries on record and accepted differ")
    # A worker that is killed may have claimed what it had not begun.
    _expect(done, runs <= done.kinds["processing"], "more was run than was claimed")
    _expect(done, done.kills > 0 or runs == done.kinds["processing"], "less was run than was claimed")
    done.problems += await Credits.of(app).check()
    account = await Credits.of(app).account("user:7")
    _expect(done, account.reserved == 0, f"{account.reserved} credits are still reserved")
    _expect(done, account.spent == complete, f"{account.spent} credits were spent for {complete} pictures")
    _expect(done, account.available + account.spent == CREDITS, "credits came or went")
    images = {path.name.split(".")[0] for path in world.settings.images_dir.iterdir()}
    _expect(done, len(images) >= complete, "pictures are missing")


def _expect(done: Race, true: bool, line: str) -> None:
    if not true:
        done.problems.append(line)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.systems.screenshots.api.racing", description=__doc__
    )
    parser.add_argument("--retries", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    given = parser.parse_args()
    began = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = f"sqlite:///{folder}/race.db"
        if given.store == "postgres":
            url = stack.enter_context(Postgres(durable=True)).dsn
            asyncio.run(
                Holdfast(url, extensions=[Credits()]).migrate()
            )  # an SQLite file is migrated when it is opened
        done = asyncio.run(race(Path(folder), url, retries=given.retries, kills=given.kills, seed=given.seed))
    print(
        f"{done.accepted:,} retries accepted of {done.answers.total():,} asked for, {len(done.jobs):,} jobs,"
        f" {done.kinds['processing']:,} runs, {done.kinds['retry']:,} automatic retries, {done.swept:,} swept, {done.taken:,} taken from"
        f" stuck attempts by retries,"
        f" {done.kills} workers killed, {time.monotonic() - began:.0f} s"
    )
    for line in done.problems[:20]:
        print(f"PROBLEM {line}")
    print(
        "the ledger balances, one run for each retry"
        if not done.problems
        else f"{len(done.problems)} problems"
    )
    return 1 if done.problems else 0


if __name__ == "__main__":
    sys.exit(main())

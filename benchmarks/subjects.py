"""The subjects of the benchmark: two floors, Holdfast on both stores, and other queues."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

Store = Literal["postgres", "sqlite"]
Role = Literal["floor", "holdfast", "peer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A queue that is measured."""

    name: str
    role: Role
    store: Store
    adapter: str  #: a module of benchmarks.adapters
    sizes: tuple[int, ...]  #: of a worker; the best in the trial round is used
    unfinished: (
        str  #: SQL that counts unfinished jobs, without future ones; {put} is the number of enqueued jobs
    )
    packages: tuple[str, ...] = ()  #: to install in its own environment; empty to use this environment
    worker: tuple[
        str, ...
    ] = ()  #: the arguments of its worker's command, after the interpreter; {size} is filled in
    environment: tuple[tuple[str, str], ...] = ()  #: for its worker
    rate: int = 1000  #: an estimate of its drain rate, until the trial round
    retries: float = 0.4  #: an estimate of that rate's share that remains when every job fails once
    fast: bool = True  #: False for queues that are measured less often, to save time

    @property
    def label(self) -> str:
        return self.packages[0].replace("==", " ") if self.packages else self.name


HOLDFAST_WORKER = ("-m", "holdfast", "worker", "benchmarks.app:app", "--concurrency", "{size}")
HUEY_WORKER = (
    *("-m", "huey.bin.huey_consumer", "benchmarks.adapters.huey.consumer"),
    *(
        "-w",
        "{size}",
        "-k",
        "thread",
        "-n",
        "-q",
        "-d",
        "0.01",
        "-m",
        "0.05",
    ),  # -d, -m: first and longest poll
)
SOON = "now() + interval '1 hour'"

SUBJECTS = (
    Subject(
        name="limit_pg",
        role="floor",
        store="postgres",
        adapter="limit_pg",
        sizes=(100, 500),
        rate=30_000,
        unfinished=f"SELECT count(*) FROM job WHERE status IN (0, 1) AND due < {SOON}",
    ),
    Subject(
        name="holdfast_pg",
        role="holdfast",
        store="postgres",
        adapter="holdfast",
        sizes=(100, 500),
        rate=18_000,
        worker=HOLDFAST_WORKER,
        unfinished=f"""
            SELECT (SELECT count(*) FROM holdfast.ready) + (SELECT count(*) FROM holdfast.lease)
                 + (SELECT count(*) FROM holdfast.deferred WHERE run_at < {SOON})""",
    ),
    Subject(
        name="pgqueuer",
        role="peer",
        store="postgres",
        adapter="pgqueuer",
        packages=("pgqueuer==1.6.0", "asyncpg"),
        sizes=(100, 500),
        rate=9000,
        retries=0.1,
        unfinished=f"SELECT count(*) FROM pgqueuer WHERE execute_after < {SOON}",
    ),
    Subject(
        name="awa",
        role="peer",
        store="postgres",
        adapter="awa",
        packages=("awa-pg==0.6.9", "asyncpg", "psycopg[binary]", "uvloop"),
        sizes=(256, 1024),
        rate=3000,
        retries=0.04,
        environment=(("AWA_COMPLETION_SHARDS", "1"),),
        unfinished="""
            SELECT {put} - coalesce((SELECT sum(completed_count) FROM awa.receipt_completion_batches), 0)
                 - (SELECT count(*) FROM awa.done_entries WHERE state = 'completed')
                 - coalesce((SELECT sum(pruned_completed_count) FROM awa.queue_terminal_rollups), 0)""",
    ),
    Subject(
        name="chancy",
        role="peer",
        store="postgres",
        adapter="chancy",
        packages=("chancy==0.26.0", "psycopg[binary,pool]"),
        sizes=(100, 500),
        rate=1500,
        fast=False,
        unfinished=f"""
            SELECT count(*) FROM chancy_jobs
             WHERE state IN ('pending', 'running', 'retrying') AND scheduled_at < {SOON}""",
    ),
    Subject(
        name="procrastinate",
        role="peer",
        store="postgres",
        adapter="procrastinate",
        packages=("procrastinate==3.10.0", "psycopg[binary,pool]"),
        sizes=(10, 50),
        rate=300,
        fast=False,
        unfinished=f"""
            SELECT count(*) FROM procrastinate_jobs
             WHERE status IN ('todo', 'doing') AND coalesce(scheduled_at, now()) < {SOON}""",
    ),
    Subject(
        name="saq",
        role="peer",
        store="postgres",
        adapter="saq",
        packages=("saq[postgres]==0.26.4", "psycopg[binary,pool]"),
        sizes=(10, 100),
        rate=250,
        fast=False,
        unfinished="""
            SELECT count(*) FROM saq_jobs WHERE status IN ('new', 'queued', 'active', 'aborting')
               AND scheduled < extract(epoch FROM now()) + 3600""",
    ),
    Subject(
        name="limit_sqlite",
        role="floor",
        store="sqlite",
        adapter="limit_sqlite",
        sizes=(100, 500),
        rate=50_000,
        unfinished="SELECT count(*) FROM job WHERE status IN (0, 1) AND due < strftime('%s', 'now') + 3600",
    ),
    Subject(
        name="holdfast_sqlite",
        role="holdfast",
        store="sqlite",
        adapter="holdfast",
        sizes=(100, 500),
        rate=25_000,
        worker=HOLDFAST_WORKER,
        unfinished="""
            SELECT (SELECT count(*) FROM holdfast_job WHERE phase = 0) + (SELECT count(*) FROM holdfast_job WHERE phase = 2)
                 + (SELECT count(*) FROM holdfast_job WHERE phase = 1 AND run_at < (strftime('%s', 'now') + 3600) * 1000000)""",
    ),
    Subject(
        name="huey",
        role="peer",
        store="sqlite",
        adapter="huey",
        packages=("huey==3.5.4",),
        sizes=(1, 4),
        rate=2000,
        retries=0.2,
        worker=HUEY_WORKER,
        unfinished="SELECT count(*) FROM task",
    ),
)
FLOOR: dict[Store, str] = {"postgres": "limit_pg", "sqlite": "limit_sqlite"}
OURS: dict[Store, str] = {"postgres": "holdfast_pg", "sqlite": "holdfast_sqlite"}
#: absurd-sdk 0.5.1 is missing, because its tables are in its repository and not in its package.


def chosen(names: str | None, *, fast: bool = False) -> list[Subject]:
    """Return the subjects to measure: the floors, Holdfast, and some peers.

    The peers are those in the comma-separated *names*, or else all, or only the *fast* ones.
    """
    wanted = None if names is None else {name for name in names.split(",") if name}
    if wanted is not None and (unknown := wanted - {subject.name for subject in SUBJECTS}):
        known = ", ".join(subject.name for subject in SUBJECTS if subject.role == "peer")
        sys.exit(f"bench: no peer named {', '.join(sorted(unknown))}; there are: {known}")
    return [
        subject
        for subject in SUBJECTS
        if subject.role != "peer" or (subject.fast or not fast if wanted is None else subject.name in wanted)
    ]

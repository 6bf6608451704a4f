"""The scenarios: each measures the figures of one cell, in the same way for every subject.

A drain is timed from the first job's start, so without the worker's start-up, until the store has no
unfinished job, not until the last job has run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks import proc
from benchmarks.arena import Arena, CellFailed, Client, Worker
from benchmarks.marks import marked
from benchmarks.subjects import Subject

Figures = dict[str, Any]
BULK = 20_000
CALLERS = 100
SLICES = 6
WAL_BATCH = 100
DRAIN_LIMIT = 40.0


@dataclass
class Plan:
    """The lengths of measurements, and the sizes and rates of subjects known so far."""

    seconds: float = 1.2
    backlog: int = 300_000  #: future jobs
    held: float = 60.0  #: how long the snapshot is held
    window: float = 10.0  #: how long the rate is measured, at its end and before it
    idle: float = 8.0
    pulses: int = 150  #: jobs of the latency cell
    sizes: dict[str, int] = field(default_factory=dict)
    rates: dict[tuple[str, str], float] = field(default_factory=dict)

    def size(self, subject: Subject) -> int:
        """Return the subject's worker size: the best of the trial, or else the largest."""
        return self.sizes.get(subject.name, subject.sizes[-1])

    def jobs(self, subject: Subject, scenario: str = "b2") -> int:
        """Return the number of jobs that the subject is expected to run in the time of a cell."""
        drain = self.rates.get((subject.name, "b2"), subject.rate)
        guess = drain * subject.retries if scenario == "b5" else drain
        rate = self.rates.get((subject.name, scenario), guess)
        return max(200, min(200_000, int(rate * self.seconds) // 100 * 100))


def b1(arena: Arena, subjects: list[Subject], plan: Plan) -> dict[str, Figures]:
    """Measure enqueueing: one durable job a call, many in one call, and a hundred callers at once.

    A single call is bound by the disk, whose speed changes from second to second, so the subjects take turns
    in short slices.
    """
    slice_seconds = plan.seconds / SLICES
    slices: dict[str, list[Figures]] = {subject.name: [] for subject in subjects}
    sync: list[Figures] = []

    def single(subject: Subject, client: Client, found: Figures) -> None:
        before = arena.server_cpu(subject)
        part = client.call("single", seconds=slice_seconds)
        slices[subject.name].append(part | {"server": arena.server_cpu(subject) - before})
        if subject.role == "holdfast" and subject.store == "sqlite":
            sync.append(client.call("single_sync", seconds=slice_seconds))

    def bulk(subject: Subject, client: Client, found: Figures) -> None:
        found |= _summed("single", slices[subject.name])
        if subject.role == "holdfast" and subject.store == "sqlite":
            found |= _summed("single_sync", sync)
        if client.call("facts")["bulk"]:
            times = 1 if subject.role == "peer" else 3
            found |= _summed("bulk", [client.call("fill", task="noop", count=BULK) for _ in range(times)])

    def callers(subject: Subject, client: Client, found: Figures) -> None:
        if client.call("facts")["callers"]:
            found["callers"] = client.call("callers", seconds=plan.seconds, callers=CALLERS)["rate"]

    with Together(arena, subjects) as together:
        for _ in range(SLICES):
            together.each(single)
        together.each(bulk)
        together.each(callers)
    return together.found


def _summed(name: str, parts: list[Figures]) -> Figures:
    """Return the rate over all slices, and CPU microseconds per job."""
    jobs = sum(part["n"] for part in parts)
    found: Figures = {name: jobs / sum(part["n"] / part["rate"] for part in parts)}
    if "server" in parts[0]:
        found["client_us"] = sum(part["client_us"] * part["n"] for part in parts) / jobs
        found["server_us"] = sum(part["server"] for part in parts) / jobs * 1e6
    return found


Step = Callable[[Subject, Client, Figures], None]


class Together:
    """Several subjects with open stores at the same time.

    A subject that fails gets an error and takes no further part.
    """

    def __init__(self, arena: Arena, subjects: list[Subject]) -> None:
        self.found: dict[str, Figures] = {subject.name: {} for subject in subjects}
        self.stack = contextlib.ExitStack()
        self._arena, self._subjects = arena, subjects
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> Together:
        def enter(subject: Subject, client: Client, found: Figures) -> None:
            self._clients[subject.name] = self.stack.enter_context(self._arena.place(subject))

        self.each(enter)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def each(self, step: Step) -> None:
        """Run *step* for each subject that has not failed."""
        for subject in self._subjects:
            found = self.found[subject.name]
            if "error" not in found:
                try:
                    step(subject, self._clients.get(subject.name) or self._arena.client(subject), found)
                except CellFailed as error:
                    found["error"] = str(error)


def b2(arena: Arena, subject: Subject, plan: Plan, count: int = 1) -> Figures:
    """Measure a drain by *count* worker processes."""
    jobs, size = plan.jobs(subject), plan.size(subject)
    with arena.place(subject) as client:
        client.call("fill", task="noop", count=jobs)
        return _drain(arena, subject, size, jobs, jobs, count)


def b3(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Measure the delay from enqueueing a job to its start on an idle worker."""
    warm_up = 20
    expected = 1 + warm_up + plan.pulses
    with arena.place(subject) as client, arena.workers(subject, plan.size(subject)) as workers:
        client.send("latency", count=plan.pulses, gap=0.015, warm_up=warm_up)
        arena.wait_for_first(subject, workers)
        client.answer()
        until = time.monotonic() + 10
        while len(lines := arena.marks(subject).read_text().split()) < expected and time.monotonic() < until:
            time.sleep(0.02)
    delays = sorted(float(text) for text in lines[1 + warm_up :])
    if len(delays) < plan.pulses:  # the missing ones would be the slowest
        raise CellFailed(f"only {len(delays)} of {plan.pulses} jobs started")

    def quantile(share: float) -> float:
        return delays[min(len(delays) - 1, int(len(delays) * share))]

    return {"p50": quantile(0.5), "p95": quantile(0.95), "p99": quantile(0.99), "n": len(delays)}


def b4(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Measure a drain by two worker processes."""
    return b2(arena, subject, plan, count=2)


def b5(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Measure a drain in which every job fails once, so has two attempts."""
    jobs, size = plan.jobs(subject, "b5"), plan.size(subject)
    with arena.place(subject) as client:
        client.call("fill", task="fail", count=jobs)
        return _drain(arena, subject, size, jobs, 2 * jobs, 1)


def b6(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Measure a drain as in b2, and then with many future jobs in the store."""
    plain = b2(arena, subject, plan)
    if "unfinished" in plain:
        return plain
    jobs, size = plan.jobs(subject), plan.size(subject)
    with arena.place(subject) as client:
        client.call("future", count=plan.backlog)
        if subject.store == "postgres":
            arena.server.execute("ANALYZE", arena.database(subject))
        client.call("fill", task="noop", count=jobs)
        found = _drain(arena, subject, size, jobs, jobs, 1)
        return {"backlog": plan.backlog, "plain": plain["rate"]} | found


def _drain(arena: Arena, subject: Subject, size: int, jobs: int, bodies: int, count: int) -> Figures:
    with (
        arena.counting(subject, jobs) as counter,
        arena.workers(subject, size, count) as workers,
    ):
        arena.wait_for_first(subject, workers)
        started = time.perf_counter()
        groups = {worker.pid for worker in workers}
        own, server = proc.cpu_of_groups(groups), arena.server_cpu(subject)
        until = time.monotonic() + DRAIN_LIMIT
        arena.wait_for_marks(subject, bodies, workers, until)
        while (unfinished := counter.unfinished()) > 0 and time.monotonic() < until:
            time.sleep(0.01)
        seconds = time.perf_counter() - started
        own, server = proc.cpu_of_groups(groups) - own, arena.server_cpu(subject) - server
        runs = marked(str(arena.marks(subject)))
    if unfinished <= 0 and runs < bodies:
        raise CellFailed(f"no job is unfinished, but only {runs} of {bodies} runs were marked")
    done = jobs - max(unfinished, 0)
    found: Figures = {
        "rate": done / seconds,
        "n": jobs,
        "size": size,
        "seconds": seconds,
        "runs": runs,
        "worker_us": own / max(done, 1) * 1e6,
        "server_us": server / max(done, 1) * 1e6,
    }
    return found | ({"unfinished": unfinished} if unfinished > 0 else {})


def wal(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Measure the bytes of write-ahead log per job, enqueued and run in batches of a hundred."""
    jobs = max(1000, min(10_000, plan.jobs(subject)))
    with arena.place(subject) as client:
        start = arena.wal()
        client.call("fill", task="noop", count=jobs, batch=WAL_BATCH)
        filled = arena.wal()
        drained = _drain(arena, subject, WAL_BATCH, jobs, jobs, 1)
        end = arena.wal()
    if "unfinished" in drained:
        raise CellFailed("not drained")
    return {
        "put": (filled - start) / jobs,
        "drain": (end - filled) / jobs,
        "bytes": (end - start) / jobs,
        "n": jobs,
    }


def snapshot(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Measure a producer and a worker, first alone, then beside a snapshot that is held open."""
    warm_up_seconds = 3.0
    path = str(arena.marks(subject))
    with arena.place(subject) as client, arena.workers(subject, plan.size(subject)) as workers:
        client.send("produce", seconds=warm_up_seconds + plan.window + plan.held + 2, batch=500, backlog=5000)
        arena.wait_for_first(subject, workers)
        time.sleep(warm_up_seconds)
        free = _pace(path, plan.window, workers)
        with psycopg.connect(arena.url(subject)) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM pg_class")
            paces = [_pace(path, plan.window, workers) for _ in range(max(1, round(plan.held / plan.window)))]
            holder.rollback()
        with contextlib.suppress(CellFailed):
            client.answer()
    return {"free": free, "held": paces[-1], "paces": paces, "seconds": plan.held, "rate": paces[-1] / free}


def _pace(path: str, seconds: float, workers: list[Worker]) -> float:
    """Return the jobs a second over the next *seconds*. Raises `CellFailed` when a worker has ended."""
    count, started = marked(path), time.perf_counter()
    time.sleep(seconds)
    if any(worker.poll() is not None for worker in workers):
        raise CellFailed("the worker ended")
    return (marked(path) - count) / (time.perf_counter() - started)


def b7(arena: Arena, subjects: list[Subject], plan: Plan) -> dict[str, Figures]:
    """Measure CPU and memory of idle workers that have run one job. All subjects are measured at once."""
    workers: dict[str, Worker] = {}
    before: dict[str, tuple[float, float]] = {}

    def start(subject: Subject, client: Client, found: Figures) -> None:
        [worker] = together.stack.enter_context(arena.workers(subject, plan.size(subject)))
        client.call("one")
        arena.wait_for_first(subject, [worker])
        workers[subject.name] = worker

    def used(subject: Subject) -> tuple[float, float]:
        own = proc.on_cpu(proc.group(workers[subject.name].pid))
        if subject.store != "postgres":
            return own, 0.0
        return own, proc.on_cpu(proc.backends(arena.server.pid, arena.database(subject)))

    def first(subject: Subject, client: Client, found: Figures) -> None:
        before[subject.name] = used(subject)

    def last(subject: Subject, client: Client, found: Figures) -> None:
        own, server = (now - then for now, then in zip(used(subject), before[subject.name], strict=True))
        found["cpu"] = own / plan.idle * 100
        found["server_cpu"] = server / plan.idle * 100
        found["rss_mb"] = proc.resident_mb(proc.group(workers[subject.name].pid))

    with Together(arena, subjects) as together:
        together.each(start)
        time.sleep(4)
        together.each(first)
        time.sleep(plan.idle)
        together.each(last)
    return together.found


#: The scenarios that measure one subject at a time, and those that measure all subjects in turn.
ALONE: dict[str, Callable[[Arena, Subject, Plan], Figures]] = {
    "b2": b2,
    "b3": b3,
    "b4": b4,
    "b5": b5,
    "b6": b6,
    "wal": wal,
    "snapshot": snapshot,
}
TOGETHER: dict[str, Callable[[Arena, list[Subject], Plan], dict[str, Figures]]] = {"b1": b1, "b7": b7}
EVERY = ("b1", "b2", "b3", "b4", "b5", "b6", "wal", "snapshot", "b7")
ONCE = ("wal", "snapshot", "b7")  #: measured in the first round only, because they hardly vary or take long
RACES = ("b2", "b5")  #: peers take part in every round, because targets refer to them


def taking_part(subjects: list[Subject], scenario: str, number: int) -> list[Subject]:
    """Return the subjects to measure in this round.

    In the first round these are all subjects, except where that takes too long; later those that targets
    refer to.
    """
    if scenario in ONCE and number > 1:
        return []
    found = [
        subject for subject in subjects if subject.store == "postgres" or scenario not in ("wal", "snapshot")
    ]
    if scenario == "snapshot":
        return [subject for subject in found if subject.role != "peer"]
    if number > 1:
        return [
            subject for subject in found if subject.role != "peer" or (subject.fast and scenario in RACES)
        ]
    return [subject for subject in found if subject.fast or scenario not in ("b4", "b6", "wal")]

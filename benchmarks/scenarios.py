"""What is measured: each scenario makes the figures of one cell, alike for every subject.

A drain is timed from the first job's body (worker start-up is left out) to the moment the store itself says that nothing
is unfinished, not to the last body.
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
    """How long to measure, and what is known of each subject."""

    seconds: float = 1.2
    backlog: int = 300_000  #: future jobs
    held: float = 60.0  #: how long the snapshot is held
    window: float = 10.0  #: of which this is measured, and as much before it
    idle: float = 8.0
    pulses: int = 150  #: jobs of the latency cell
    sizes: dict[str, int] = field(default_factory=dict)
    rates: dict[tuple[str, str], float] = field(default_factory=dict)

    def size(self, subject: Subject) -> int:
        return self.sizes.get(subject.name, subject.sizes[-1])

    def jobs(self, subject: Subject, scenario: str = "b2") -> int:
        """As many as it will run in the time of a cell."""
        drain = self.rates.get((subject.name, "b2"), subject.rate)
        guess = drain * subject.retries if scenario == "b5" else drain
        rate = self.rates.get((subject.name, scenario), guess)
        return max(200, min(200_000, int(rate * self.seconds) // 100 * 100))


def b1(arena: Arena, subjects: list[Subject], plan: Plan) -> dict[str, Figures]:
    """Enqueue: one durable job a call, many in one call, and a hundred callers at once.

    A single call is bound by the disk, whose speed changes from second to second: all take turns, in short slices.
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
    """The rate over all slices, and CPU microseconds a job."""
    jobs = sum(part["n"] for part in parts)
    found: Figures = {name: jobs / sum(part["n"] / part["rate"] for part in parts)}
    if "server" in parts[0]:
        found["client_us"] = sum(part["client_us"] * part["n"] for part in parts) / jobs
        found["server_us"] = sum(part["server"] for part in parts) / jobs * 1e6
    return found


Step = Callable[[Subject, Client, Figures], None]


class Together:
    """Several subjects with an open store at the same time. One that fails gets an error, and drops out."""

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
        for subject in self._subjects:
            found = self.found[subject.name]
            if "error" not in found:
                try:
                    step(subject, self._clients.get(subject.name) or self._arena.client(subject), found)
                except CellFailed as error:
                    found["error"] = str(error)


def b2(arena: Arena, subject: Subject, plan: Plan, count: int = 1) -> Figures:
    """Drain what is there by one worker process."""
    jobs, size = plan.jobs(subject), plan.size(subject)
    with arena.place(subject) as client:
        client.call("fill", task="noop", count=jobs)
        return _drain(arena, subject, size, jobs, jobs, count)


def b3(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """How late does a job begin, on an idle worker?"""
    warm_up = 20
    wanted = 1 + warm_up + plan.pulses
    with arena.place(subject) as client, arena.workers(subject, plan.size(subject)) as workers:
        client.tell("latency", count=plan.pulses, gap=0.015, warm_up=warm_up)
        arena.wait_for_first(subject, workers)
        client.answer()
        until = time.monotonic() + 10
        while len(late := arena.marks(subject).read_text().split()) < wanted and time.monotonic() < until:
            time.sleep(0.02)
    delays = sorted(float(text) for text in late[1 + warm_up :])
    if len(delays) < plan.pulses:  # those that are missing would be the slowest
        raise CellFailed(f"only {len(delays)} of {plan.pulses} jobs began")

    def quantile(share: float) -> float:
        return delays[min(len(delays) - 1, int(len(delays) * share))]

    return {"p50": quantile(0.5), "p95": quantile(0.95), "p99": quantile(0.99), "n": len(delays)}


def b4(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Drain by two worker processes."""
    return b2(arena, subject, plan, count=2)


def b5(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Drain where every job fails once: two attempts a job."""
    jobs, size = plan.jobs(subject, "b5"), plan.size(subject)
    with arena.place(subject) as client:
        client.call("fill", task="fail", count=jobs)
        return _drain(arena, subject, size, jobs, 2 * jobs, 1)


def b6(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Drain as in b2, and then the same with many future jobs in the store."""
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
        began = time.perf_counter()
        groups = {worker.pid for worker in workers}
        own, server = proc.cpu_of_groups(groups), arena.server_cpu(subject)
        until = time.monotonic() + DRAIN_LIMIT
        arena.wait_for_marks(subject, bodies, workers, until)
        while (left := counter.unfinished()) > 0 and time.monotonic() < until:
            time.sleep(0.01)
        seconds = time.perf_counter() - began
        own, server = proc.cpu_of_groups(groups) - own, arena.server_cpu(subject) - server
        runs = marked(str(arena.marks(subject)))
    if left <= 0 and runs < bodies:
        raise CellFailed(f"nothing is unfinished, but only {runs} of {bodies} bodies ran")
    done = jobs - max(left, 0)
    found: Figures = {
        "rate": done / seconds,
        "n": jobs,
        "size": size,
        "seconds": seconds,
        "runs": runs,
        "worker_us": own / max(done, 1) * 1e6,
        "server_us": server / max(done, 1) * 1e6,
    }
    return found | ({"unfinished": left} if left > 0 else {})


def wal(arena: Arena, subject: Subject, plan: Plan) -> Figures:
    """Bytes of write-ahead log a job, enqueued and run in batches of a hundred."""
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
    """A producer and a worker, first free, then beside a snapshot that somebody keeps open."""
    settle = 3.0
    path = str(arena.marks(subject))
    with arena.place(subject) as client, arena.workers(subject, plan.size(subject)) as workers:
        client.tell("produce", seconds=settle + plan.window + plan.held + 2, batch=500, backlog=5000)
        arena.wait_for_first(subject, workers)
        time.sleep(settle)
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
    """Bodies a second over so many seconds."""
    count, began = marked(path), time.perf_counter()
    time.sleep(seconds)
    if any(worker.poll() is not None for worker in workers):
        raise CellFailed("the worker ended")
    return (marked(path) - count) / (time.perf_counter() - began)


def b7(arena: Arena, subjects: list[Subject], plan: Plan) -> dict[str, Figures]:
    """An idle worker after one job: CPU and memory. All at once, for they do nothing."""
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


#: Those that measure one subject after the other, and those that measure all of them in turns.
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
ONCE = ("wal", "snapshot", "b7")  #: in the first round only: they hardly vary, or take long
RACES = ("b2", "b5")  #: where peers take part in every round, for our targets name them


def taking_part(subjects: list[Subject], scenario: str, number: int) -> list[Subject]:
    """All in the first round, but for what takes too long; then those whose ratios are our targets."""
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

"""CPU time and memory of processes, from /proc. Other load affects wall time, but hardly these."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
Stat = tuple[int, int, float]  # parent, process group, CPU seconds with those of ended children


def _stats() -> Iterator[tuple[int, Stat]]:
    for entry in os.listdir(PROC):
        if entry.isdigit():
            try:
                fields = (PROC / entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(entry), (int(fields[1]), int(fields[2]), sum(map(int, fields[11:15])) / TICKS)


def cpu_of_groups(groups: Collection[int]) -> float:
    """Return the CPU seconds of all processes in these process groups."""
    return sum(cpu for _, (_, group, cpu) in _stats() if group in groups)


def cpu_of_tree(root: int | None) -> float:
    """Return the CPU seconds of a process and its descendants, with those that have ended."""
    stats = dict(_stats())
    return sum(stats[pid][2] for pid in _below(root, stats) if pid in stats)


def _below(root: int | None, stats: dict[int, Stat]) -> set[int]:
    tree = set() if root is None else {root}
    while more := {pid for pid, (parent, _, _) in stats.items() if parent in tree and pid not in tree}:
        tree |= more
    return tree


def group(leader: int) -> list[int]:
    """Return the ids of the processes in the group of *leader*."""
    return [pid for pid, (_, its_group, _) in _stats() if its_group == leader]


def backends(server: int, database: str) -> list[int]:
    """Return the ids of a PostgreSQL server's processes for clients of this database.

    They are found by their titles.
    """
    found = []
    for pid in _below(server, dict(_stats())):
        try:
            title = (PROC / str(pid) / "cmdline").read_text().split()
        except OSError:
            continue
        if database in title:
            found.append(pid)
    return found


def on_cpu(pids: Collection[int]) -> float:
    """Return the CPU seconds of all threads of these processes, exact enough for idle ones."""
    total = 0
    for pid in pids:
        for thread in (PROC / str(pid) / "task").glob("*/schedstat"):
            try:
                total += int(thread.read_text().split()[0])
            except OSError:
                continue
    return total / 1e9


def resident_mb(pids: Collection[int]) -> float:
    """Return the resident memory of these processes in megabytes."""
    pages = 0
    for pid in pids:
        try:
            pages += int((PROC / str(pid) / "statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

"""Process trees: their members, their memory, and how to kill them. Reads /proc, so Linux only."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> list[int]:
    """Return *pid* and the ids of its current descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The second field is a name in parentheses, with any characters; the parent is the second
                # field after it.
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, ())
    return found


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, with shared pages; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def own_bytes(pid: int) -> int:
    """Return the memory of a process, with its share of shared pages; 0 if it has ended.

    This is exact, and slower than `resident_bytes`.
    """
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return 0


def pids_with_argument(text: str) -> list[int]:
    """Return the ids of processes whose command line contains *text*, which finds orphans too."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                if text.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
    return found


def end_family(pid: int) -> list[int]:
    """Kill a process and its descendants, and return their ids. Processes that have ended are skipped."""
    pids = family(pid)
    for one in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
    return pids

"""A process with all that came of it: how much memory they hold, and how they are ended. From /proc, so Linux only."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> list[int]:
    """*pid* and its descendants, as of now."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The second field is a name in parentheses, which may hold anything; the parent is the second behind it.
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, ())
    return found


def resident_bytes(pid: int) -> int:
    """What it holds in memory, shared or not; 0 for one that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def own_bytes(pid: int) -> int:
    """What it holds in memory, of shared pages its share. Exact, and slower to learn."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return 0


def naming(text: str) -> list[int]:
    """Return processes whose command line holds *text*: their parent may be gone, and the way to them with it."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                if text.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
    return found


def end_family(pid: int) -> list[int]:
    """Kill it and its descendants. Those that are gone already are no trouble."""
    ended = family(pid)
    for one in ended:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
    return ended

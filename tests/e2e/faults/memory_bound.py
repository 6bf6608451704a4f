"""A limit on the memory of processes. The kernel kills a process that takes more, as on a machine without free memory.

    with memory_bound(300_000_000) as bound:
        subprocess.Popen([*bound.command, "python", …])
        assert bound.kills() == 1

Where control groups cannot be created, `memory_bound` yields `None`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
#: For both versions of control groups: the folder, the files of the limits without and with swap, the file that counts kills.
KINDS = (
    (GROUPS / "memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
    (GROUPS, "memory.max", "memory.swap.max", "memory.events"),
)


@dataclass(frozen=True)
class Bound:
    group: Path
    counter: str

    @property
    def command(self) -> tuple[str, ...]:
        """What goes before a command to run it under this limit."""
        return ("sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh")

    def kills(self) -> int:
        """Return how many processes the kernel has killed for their memory."""
        found = re.search(r"^oom_kill (\d+)$", (self.group / self.counter).read_text(), re.MULTILINE)
        return int(found[1]) if found else 0


@contextlib.contextmanager
def memory_bound(most: int) -> Iterator[Bound | None]:
    for parent, bound, with_swap, counter in KINDS:
        group = parent / f"holdfast-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / bound).exists():
                (group / bound).write_text(str(most))
                if (group / with_swap).exists():
                    (group / with_swap).write_text(str(most if bound != "memory.max" else 0))
                yield Bound(group, counter)
                return
        finally:
            _remove(group)
    yield None


def _remove(group: Path) -> None:
    """Remove the group, which works once its killed processes are gone."""
    until = time.monotonic() + 30
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)

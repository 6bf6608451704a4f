"""A small process that ends servers when the process that started them has died, even by SIGKILL.

The keeper reads from a pipe. When its parent dies, the pipe ends: the keeper then ends the processes and removes the
folders that it watches. It knows a process by its id and its start time, because an id may be used again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

_lock = threading.Lock()
_keeper: subprocess.Popen[bytes] | None = None
#: How long a server that is asked to end may take.
_PATIENCE = 10.0


def watch(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Send *how* to this process when the current one has died, and kill what is left of it and its children."""
    _send(f"+{pid}:{_started(pid)}:{int(how)}")


def forget(pid: int) -> None:
    _send(f"-{pid}")


def watch_folder(folder: Path) -> None:
    """Remove this folder when the current process has died."""
    _send(f"/{folder}")


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants at once. The parent is stopped first, so that it cannot react or fork."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    family = _family(pid)
    for member in reversed(family):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    _wait_for_end(family)


def close() -> None:
    """End everything that is still watched, and the keeper."""
    global _keeper
    with _lock:
        if _keeper is not None:
            _keeper.communicate()
            _keeper = None


def _send(line: str) -> None:
    global _keeper
    with _lock:
        if _keeper is None or _keeper.poll() is not None:
            _keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
            )
        assert _keeper.stdin is not None
        _keeper.stdin.write(line.encode() + b"\n")
        _keeper.stdin.flush()


def _close_inherited_pipe() -> None:
    """Close the pipe in a forked process: the keeper waits until every copy of it is closed."""
    global _keeper
    if _keeper is not None:
        assert _keeper.stdin is not None
        _keeper.stdin.close()
        _keeper.returncode = 0  # it is a child of the parent, which waits for it
        _keeper = None


os.register_at_fork(after_in_child=_close_inherited_pipe)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the command's name: state, parent, … start time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> str:
    fields = _stat(pid)
    return fields[19] if fields else ""


def _alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def _wait_for_end(pids: Iterable[int]) -> None:
    until = time.monotonic() + _PATIENCE
    while any(map(_alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)


def _family(pid: int) -> list[int]:
    """Return the process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [pid]
    for member in found:
        found.extend(children.get(member, []))
    return found


def _run() -> None:
    """Run the keeper: read what to watch until the pipe ends, and then clean up."""
    processes: dict[int, tuple[str, int]] = {}
    folders: list[str] = []
    for line in sys.stdin:
        mark, rest = line[0], line[1:].rstrip("\n")
        if mark == "+":
            pid, started, how = rest.split(":")
            processes[int(pid)] = (started, int(how))
        elif mark == "-":
            processes.pop(int(rest), None)
        else:
            folders.append(rest)
    families = [
        (pid, how, {member: _started(member) for member in _family(pid)})
        for pid, (started, how) in processes.items()
        if started and _started(pid) == started
    ]
    asked = [pid for pid, how, _ in families if how != signal.SIGKILL]
    for pid, how, _ in families:
        if how != signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
    _wait_for_end(asked)
    for _, _, family in families:
        for member, started in family.items():
            if started and _started(member) == started:
                kill_tree(member)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _run()

"""No server outlives the tests, however they end.

A small process reads our pipe. When the tests die, even by SIGKILL, the pipe ends, and the keeper kills the processes
and removes the folders it was told of. A process is known by its id and its start time, so an id used again is safe.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_lock = threading.Lock()
_keeper: subprocess.Popen[bytes] | None = None


def watch(pid: int) -> None:
    _tell(f"+{pid}:{_started(pid)}")


def forget(pid: int) -> None:
    _tell(f"-{pid}")


def watch_folder(folder: Path) -> None:
    _tell(f"/{folder}")


def kill_tree(pid: int, *, wait: float = 10) -> None:
    """Kill a process and all it has started, at once: the parent is stopped first, so it cannot react or fork."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    family = [pid, *_descendants(pid)]
    for member in reversed(family):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    until = time.monotonic() + wait
    while any(_alive(member) for member in family) and time.monotonic() < until:
        time.sleep(0.01)


def _tell(line: str) -> None:
    global _keeper
    with _lock:
        if _keeper is None or _keeper.poll() is not None:
            _keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
            )
        assert _keeper.stdin is not None
        _keeper.stdin.write(line.encode() + b"\n")
        _keeper.stdin.flush()


def close() -> None:
    """The end of a session: whatever is still watched is ended now."""
    global _keeper
    with _lock:
        if _keeper is not None:
            _keeper.communicate()
            _keeper = None


def _forget_keeper() -> None:
    """In a forked process: that one is its parent's, whose pipe must not be kept open here."""
    global _keeper
    if _keeper is not None:
        assert _keeper.stdin is not None
        _keeper.stdin.close()
        _keeper.returncode = 0  # not for us to wait for
        _keeper = None


os.register_at_fork(after_in_child=_forget_keeper)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the command's name: state, parent, … start time."""
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


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = list(children.get(pid, []))
    for child in found:
        found.extend(children.get(child, []))
    return found


def _keep() -> None:
    """The keeper's own life."""
    pids: dict[int, str] = {}
    folders: list[str] = []
    for line in sys.stdin:
        mark, rest = line[0], line[1:].rstrip("\n")
        if mark == "+":
            pid, _, started = rest.partition(":")
            pids[int(pid)] = started
        elif mark == "-":
            pids.pop(int(rest), None)
        else:
            folders.append(rest)
    for number, started in pids.items():
        if started and _started(number) == started:
            kill_tree(number)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep()

"""Supervise child processes: restart one that exits, and stop all when the parent ends, even if it is killed.

Each child has its own process group. Ctrl-C then reaches only the parent, which stops the children in order.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: The exit codes of an orderly stop: by itself, or by the signal it was sent.
_ORDERLY_EXITS = (0, -signal.SIGTERM)
#: A child that ran this long counts as healthy: its next restart is immediate again.
_HEALTHY_SEC = 10.0
_MAX_DELAY_SEC = 10.0
_PR_SET_PDEATHSIG = 1


class NotStarted(Exception):
    """A child exited before it was ready. Its own output has the reason."""


@dataclass(slots=True)
class Child:
    """A command that `tend` keeps running. With *says_ready* it prints a line `ready: …` once it serves."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    says_ready: bool = False
    process: subprocess.Popen[Any] | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.says_ready else None,
            text=True,
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has no threads
        )

    def wait_until_ready(self) -> str:
        """Wait for the line `ready: …` and return what follows the colon.

        Raise `NotStarted` if it does not come.
        """
        assert self.process is not None
        assert self.process.stdout is not None
        line: str = self.process.stdout.readline()
        if not line.startswith("ready: "):
            raise NotStarted(self.name)
        return line.removeprefix("ready: ").strip()

    def tend(self) -> None:
        """Restart the process if it has exited: at once the first time, then after a growing delay."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.start_at:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            return
        self._close()
        self.failures = self.failures + 1 if now - self.started_at < _HEALTHY_SEC else 1
        delay = 0.0 if self.failures == 1 else min(_MAX_DELAY_SEC, 0.25 * 2 ** min(self.failures, 8))
        self.start_at = now + delay
        print(f"run: the {self.name} exited (exit {code}); restarting it", file=sys.stderr, flush=True)

    def terminate(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def end(self, until: float) -> bool:
        """Wait for the exit until *until* (monotonic time), then kill.

        Return whether the exit was orderly.
        """
        if self.process is None:
            return True
        try:
            code = self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            code = self.process.wait()
        self._close()
        return code in _ORDERLY_EXITS

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None


def die_with_parent() -> None:
    """Ask the kernel to send SIGTERM to this process when its parent ends.

    Called in a child, before its program.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

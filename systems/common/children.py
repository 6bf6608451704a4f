"""Child processes that stay up: one that is lost is started again; all end with their parent, however that ends.

A child is in a process group of its own, so that Ctrl-C reaches the parent alone, which ends them in order.
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

ROOT = Path(__file__).parents[2]
#: What a child that stops in order exits with: by itself, or by the signal it was sent.
_IN_ORDER = (0, -signal.SIGTERM)
_STEADY_SEC, _LONGEST_WAIT_SEC = 10.0, 10.0
_PR_SET_PDEATHSIG = 1


class NotStarted(Exception):
    """A child ended before it was ready; it has said why itself."""


@dataclass(slots=True)
class Child:
    """A command that is to run all the time. *says_ready*: it prints a line `ready: …`, which is waited for."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    says_ready: bool = False
    process: subprocess.Popen[str] | None = None
    begun: float = 0.0
    start_at: float = 0.0
    failures: int = 0

    def start(self) -> None:
        self.begun = time.monotonic()
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
        """What it says behind `ready:`."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready: "):
            raise NotStarted(self.name)
        return line.removeprefix("ready: ").strip()

    def tend(self) -> None:
        """Start it again when it was lost, at once the first time and then ever later."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.start_at:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            return
        self._close()
        self.failures = self.failures + 1 if now - self.begun < _STEADY_SEC else 1
        wait = 0.0 if self.failures == 1 else min(_LONGEST_WAIT_SEC, 0.25 * 2 ** min(self.failures, 8))
        self.start_at = now + wait
        print(
            f"run: the {self.name} was lost (exit {code}); it is started again", file=sys.stderr, flush=True
        )

    def tell_to_stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def end(self, until: float) -> bool:
        """Wait for its end until that moment, then kill it; whether it ended in order."""
        if self.process is None:
            return True
        try:
            code = self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            code = self.process.wait()
        self._close()
        return code in _IN_ORDER

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None


def die_with_parent() -> None:
    """In a child, before its program begins: be told to stop when the parent is gone, however it went."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

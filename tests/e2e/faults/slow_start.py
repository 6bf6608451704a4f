"""Handlers of a module that takes long to import in a child process: so long as `FAULTS_SLOW_START` says, in seconds."""

from __future__ import annotations

import multiprocessing
import os
import time

from tests.e2e.faults.journal import note

if multiprocessing.parent_process() is not None:
    note("importing", "slow_start")
    time.sleep(float(os.environ.get("FAULTS_SLOW_START", "0")))


def linger(name: str, seconds: float) -> int:
    """Takes its time, with a sign of life every now and then."""
    note("start", name)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.05)
        note("alive", name)
    note("end", name)
    return os.getpid()

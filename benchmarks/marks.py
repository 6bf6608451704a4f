"""What a job's body does here: one append to a file, atomic over threads and processes, about a microsecond.

So the driver sees from outside when the first body ran and how many did, in the same way for every queue.
Standard library only: this runs in every queue's own environment.
"""

from __future__ import annotations

import functools
import os
import time

MARKS = "BENCH_MARKS"  #: the file's name, in the environment


@functools.cache
def _file() -> int:
    return os.open(os.environ[MARKS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark() -> None:
    os.write(_file(), b".")


def mark_delay(sent: float) -> None:
    """Write how long ago *sent* (seconds since 1970) was, in milliseconds."""
    os.write(_file(), b"%.3f\n" % ((time.time() - sent) * 1000))


def marked(path: str | None = None) -> int:
    """How many bytes were written: with `mark` alone, how many bodies have run."""
    try:
        return os.stat(path or os.environ[MARKS]).st_size
    except FileNotFoundError:
        return 0

"""Marks, which each job of a benchmark appends to a file.

An append is atomic over threads and processes, and takes about a microsecond. From the file the driver learns
when the first job ran, and how many have run, in the same way for every queue. Uses the standard library
only, because it runs in each queue's own environment.
"""

from __future__ import annotations

import functools
import os
import time

MARKS = "BENCH_MARKS"  #: the environment variable with the file's path


@functools.cache
def _file() -> int:
    return os.open(os.environ[MARKS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark() -> None:
    """Append one byte."""
    os.write(_file(), b".")


def mark_delay(sent: float) -> None:
    """Append how long ago *sent* (seconds since 1970) was, in milliseconds."""
    os.write(_file(), b"%.3f\n" % ((time.time() - sent) * 1000))


def marked(path: str | None = None) -> int:
    """Return the number of bytes written: with `mark` alone, the number of jobs that have run."""
    try:
        return os.stat(path or os.environ[MARKS]).st_size
    except FileNotFoundError:
        return 0

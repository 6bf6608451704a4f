"""Handlers at the top of a module, because they run in a child process."""

from __future__ import annotations

import logging
import os
import sys


def exits() -> None:
    sys.exit(3)


def dies() -> None:
    os.kill(os.getpid(), 9)


def forks() -> int:
    pid = os.fork()
    if pid == 0:
        return -1
    os.waitpid(pid, 0)
    return 1


def returns_a_lock() -> object:
    import threading

    return threading.Lock()


def says() -> None:
    log = logging.getLogger("handlers")
    log.debug("too quiet to be heard")
    log.info("from a process")
    try:
        raise OSError("broken")
    except OSError:
        log.exception("it broke")
        raise


class Stubborn(Exception):
    """It cannot be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def raises_what_cannot_travel() -> None:
    try:
        raise ValueError("the cause")
    except ValueError as error:
        raise Stubborn("a", "b") from error


_kept: list[bytes] = []


def leaks(megabytes: int) -> int:
    _kept.append(b"x" * (megabytes * 1_000_000))
    return os.getpid()

"""What signals mean to a process that is ours: stop, and read the policies again.

Stopping has a deadline. The event loop may be held by a handler, and C code may hold the interpreter's lock, so the
deadline needs neither of them: it is a thread of Python's `faulthandler`, armed by the signal itself.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a supervisor needs this file and no engine
    from holdfast.engine.ports import Clock

#: Seconds that a stop may take beyond the time that it lets work finish.
AFTER_GRACE = 5.0
_STDERR = 2
_PR_SET_PDEATHSIG = 1


class Deadline:
    """The moment at which this process ends with code 1, whatever runs in it. It prints the stacks of all threads first."""

    def __init__(self) -> None:
        self._at = math.inf
        self.is_final = False  #: whether the process must end although the worker has stopped

    def set(self, clock: Clock, seconds: float) -> None:
        """End the process after *seconds*, unless it already ends sooner."""
        if (at := clock.monotonic() + seconds) < self._at:
            self._at = at
            with suppress(RuntimeError):  # no thread can be started; this may run in the middle of a handler
                faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)

    def lift(self) -> None:
        """Let the process live, unless it must end."""
        if not self.is_final and self._at < math.inf:
            self._at = math.inf
            faulthandler.cancel_dump_traceback_later()


DEADLINE = Deadline()


@contextmanager
def with_deadline() -> Iterator[None]:
    """Inside the block the process belongs to a command: closing the database, or a thread, must not keep it either."""
    DEADLINE.is_final = True
    try:
        yield
    finally:
        DEADLINE.is_final = False


def stop_on_signals(
    stop: Callable[[], object], stack: AsyncExitStack, clock: Clock, grace: float = 0.0
) -> None:
    """Let SIGTERM and SIGINT call *stop*, each time they come, until *stack* is left; at a terminal SIGHUP too, unless it
    is ignored (`nohup`).

    The process ends `AFTER_GRACE` seconds after the *grace* that follows the first signal, and as long after the second.
    """
    signals = 0

    def arm(_number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        DEADLINE.set(clock, AFTER_GRACE + (grace if signals == 1 else 0.0))

    stack.callback(DEADLINE.lift)
    numbers = [signal.SIGTERM, signal.SIGINT]
    if sighup_stops_us() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        _call(number, stop, stack)
        signal.signal(number, arm)  # the loop still gets the signal; this runs although the loop is held


def reload_on_signal(reload: Callable[[], object], stack: AsyncExitStack) -> None:
    """Let SIGHUP call *reload*, until *stack* is left."""
    if sighup_stops_us():
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # else the loop leaves the default: it would end us
        stack.callback(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    _call(signal.SIGHUP, reload, stack)


def sighup_stops_us() -> bool:
    """At a terminal SIGHUP keeps its meaning: the terminal is gone, and so shall we be."""
    return sys.stdin is None or sys.stdin.isatty()


def signal_when_parent_ends(number: signal.Signals) -> None:
    """Let the kernel send this process a signal when the thread that started it has ended. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _call(number: signal.Signals, act: Callable[[], object], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, act)
    stack.callback(loop.remove_signal_handler, number)

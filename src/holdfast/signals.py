"""Signal handling for Holdfast's own processes: stop, and reload the policies.

A stop has a deadline. A handler may block the event loop, and C code may hold the GIL, so the deadline
depends on neither: it is a thread of Python's `faulthandler`, started by the signal handler itself.
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

if TYPE_CHECKING:  # a supervisor imports this module without the engine
    from holdfast.jobs.machine import Clock

#: Seconds that a stop may take after its grace period.
AFTER_GRACE = 5.0
_STDERR = 2
_PR_SET_PDEATHSIG = 1


class Deadline:
    """A deadline that ends the process with exit code 1, after it has printed the stacks of all threads."""

    def __init__(self) -> None:
        self._at = math.inf
        self.is_final = False  #: whether the deadline stays set after the worker has stopped

    def set(self, clock: Clock, seconds: float) -> None:
        """End the process after *seconds*, unless an earlier deadline is set."""
        if (at := clock.monotonic() + seconds) < self._at:
            self._at = at
            # No thread can be started. This must not raise into the code that the signal interrupted.
            with suppress(RuntimeError):
                faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)

    def cancel(self) -> None:
        """Remove the deadline, unless it is final."""
        if not self.is_final and self._at < math.inf:
            self._at = math.inf
            faulthandler.cancel_dump_traceback_later()


DEADLINE = Deadline()


@contextmanager
def with_deadline() -> Iterator[None]:
    """Make the deadline final inside the block: it also covers closing the database and joining threads."""
    DEADLINE.is_final = True
    try:
        yield
    finally:
        DEADLINE.is_final = False


def stop_on_signals(
    stop: Callable[[], object], stack: AsyncExitStack, clock: Clock, grace: float = 0.0
) -> None:
    """Call *stop* on every SIGTERM and SIGINT until *stack* is closed.

    At a terminal SIGHUP counts too, unless it is ignored (`nohup`). The process is ended `AFTER_GRACE`
    seconds after the *grace* period of the first signal, or `AFTER_GRACE` seconds after the second signal.
    """
    signals = 0

    def arm(_number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        DEADLINE.set(clock, AFTER_GRACE + (grace if signals == 1 else 0.0))

    stack.callback(DEADLINE.cancel)
    numbers = [signal.SIGTERM, signal.SIGINT]
    if sighup_stops_us() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        _call(number, stop, stack)
        signal.signal(number, arm)  # the loop still gets the signal; this runs even when the loop is blocked


def reload_on_signal(reload: Callable[[], object], stack: AsyncExitStack) -> None:
    """Call *reload* on every SIGHUP until *stack* is closed. At a terminal SIGHUP stops the process."""
    if sighup_stops_us():
        return
    # Removing the loop's handler restores the default, which would end the process.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        stack.callback(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    _call(signal.SIGHUP, reload, stack)


def sighup_stops_us() -> bool:
    """Return whether SIGHUP stops this process: at a terminal it means that the terminal is gone."""
    return sys.stdin is None or sys.stdin.isatty()


def signal_when_parent_ends(number: signal.Signals) -> None:
    """Ask the kernel to send this process *number* when the thread that started it ends (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _call(number: signal.Signals, act: Callable[[], object], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, act)
    stack.callback(loop.remove_signal_handler, number)

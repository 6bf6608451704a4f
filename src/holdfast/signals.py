"""What signals mean to a process that is ours: stop, and read the policies again."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack


def stop_on_signals(stop: Callable[[], object], stack: AsyncExitStack) -> None:
    """SIGTERM and SIGINT call *stop*, each time they come, until *stack* is left; at a terminal SIGHUP does, too, unless
    somebody (`nohup`) has it ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        _call(number, stop, stack)
    if hang_up_ends_us() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        _call(signal.SIGHUP, stop, stack)


def reload_on_signal(reload: Callable[[], object], stack: AsyncExitStack) -> None:
    """SIGHUP calls *reload*, until *stack* is left."""
    if hang_up_ends_us():
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # else the loop leaves the default: it would end us
        stack.callback(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    _call(signal.SIGHUP, reload, stack)


def hang_up_ends_us() -> bool:
    """At a terminal SIGHUP keeps its meaning: the terminal is gone, and so shall we be."""
    return sys.stdin is None or sys.stdin.isatty()


def _call(number: signal.Signals, act: Callable[[], object], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, act)
    stack.callback(loop.remove_signal_handler, number)

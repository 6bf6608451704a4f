"""A parent that keeps worker processes running: it starts them, passes signals on, and replaces one that is lost.

    start ──► running ──ended with 0──────────► done
      ▲          ├──ended otherwise──► waits ──┐
      └──────────┴──told to reload─────────────┘      told to stop: nothing is started again

A child is in a process group of its own: Ctrl-C reaches only the parent, which passes it on once. Otherwise every
child would be told twice, and the second time means "at once". SIGHUP ends nobody: it is passed on to those who read
their policies again.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from holdfast.cli.exit_codes import OK, PROBLEMS, USAGE
from holdfast.logs import Log
from holdfast.signals import AFTER_GRACE, sighup_stops_us, signal_when_parent_ends

log = Log("holdfast.supervisor")

MARKER = "HOLDFAST_SUPERVISOR"  #: tells a child the process id of its parent, and where to write to it
TICK = 0.05
STEADY = 10.0  #: a child that lived this long did not fail at its start
LONGEST_WAIT = 30.0
PATIENCE = 5.0  #: how long a reload waits for a child before it says so again
OVERDUE = 1.0  #: a child that should have ended by itself is killed after this
_to_parent: list[int] = []


def die_with_parent() -> None:
    """In a child of a supervisor: be told to stop when the parent is gone, however it went."""
    parent, _, pipe = os.environ.pop(MARKER, "").partition(":")
    if not parent:
        return
    os.set_inheritable(int(pipe), False)
    _to_parent.append(int(pipe))
    if not sighup_stops_us():  # it asks to read the policies again: that comes later, or there are none
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    signal_when_parent_ends(signal.SIGTERM)
    if os.getppid() != int(parent):  # it went before we asked
        sys.exit(OK)


def report_to_parent(seconds: float) -> None:
    """Report to the supervisor, if there is one, how long a stop of this process may take. It kills what takes longer."""
    while _to_parent:
        with suppress(OSError), os.fdopen(_to_parent.pop(), "w") as pipe:
            pipe.write(str(seconds))


@dataclass(slots=True)
class _Slot:
    own: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    pipe: int | None = None  #: where the child reports how long its stop may take
    kill_at: float = math.inf
    reloading: float | None = None  #: since when it has been told to end for a reload
    ended: int | None = field(default=None)  #: its last code, when it is not to be started again


class Supervisor:
    """*changed* is asked again and again whether the code is new; without it nothing is reloaded. *own* gives the arguments
    that a child has alone, by its place."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        changed: Callable[[], bool] | None = None,
        own: Callable[[int], Sequence[str]] = lambda place: (),
    ) -> None:
        self._command, self._changed = list(command), changed
        self._slots = [_Slot(own(place)) for place in range(count)]
        self._signals = 0

    def run(self) -> int:
        """Until every child has ended for good; the exit code."""
        with self._passing_signals_on():
            while True:
                for slot in self._slots:
                    self._tend(slot)
                if all(
                    slot.process is None and (self._signals or slot.ended is not None) for slot in self._slots
                ):
                    break
                if self._changed is not None and not self._signals and self._changed():
                    self._reload()
                time.sleep(TICK)
        codes = [slot.ended for slot in self._slots if slot.ended]
        bad = [code for code in codes if code != -signal.SIGTERM]  # told to stop before it could listen
        return USAGE if USAGE in bad else PROBLEMS if bad else OK

    # -- one child --------------------------------------------------------------------------------------------------
    def _tend(self, slot: _Slot) -> None:
        now = time.monotonic()
        if slot.process is None:
            if not self._signals and slot.ended is None and now >= slot.start_at:
                self._start(slot)
            return
        code = slot.process.poll()
        if code is not None:
            slot.process = None
            self._listen(slot)
            self._ended(slot, code, now)
        elif slot.reloading is not None and now > slot.reloading + PATIENCE:
            slot.reloading = now
            self._end(slot)
        if slot.process is not None and now > slot.kill_at:
            log.warning("process.killed", pid=slot.process.pid, reason="it did not stop in time")
            slot.process.kill()
            slot.kill_at = math.inf

    def _end(self, slot: _Slot) -> None:
        """Tell a child to stop, and note when it is killed: C code that holds the interpreter hears no signal."""
        assert slot.process is not None
        slot.kill_at = min(slot.kill_at, time.monotonic() + self._listen(slot) + OVERDUE)
        slot.process.terminate()

    def _listen(self, slot: _Slot) -> float:
        """Return how long a stop of this child may take, which is asked once: a second signal does not wait for the grace.
        A child that has not reported yet does not handle signals either, so the first one ends it."""
        if slot.pipe is None:
            return AFTER_GRACE
        with os.fdopen(slot.pipe, "rb", buffering=0) as pipe:
            slot.pipe = None
            report = pipe.read(100)
        return float(report) if report else AFTER_GRACE

    def _start(self, slot: _Slot) -> None:
        slot.kill_at = math.inf
        slot.pipe, theirs = os.pipe()
        os.set_blocking(slot.pipe, False)
        with _hang_ups_held_back():
            slot.process = subprocess.Popen(
                [*self._command, *slot.own],
                env=os.environ | {MARKER: f"{os.getpid()}:{theirs}"},
                process_group=0,
                pass_fds=[theirs],
            )
        os.close(theirs)
        slot.started = time.monotonic()
        if self._signals:  # told to stop while it was being started: it has not heard of it
            self._end(slot)
        log.info("process.started", pid=slot.process.pid)

    def _ended(self, slot: _Slot, code: int, now: float) -> None:
        if self._signals or (code == OK and slot.reloading is None):
            slot.ended = code
        elif slot.reloading is not None:
            slot.reloading, slot.start_at = None, now
        elif self._changed is not None:
            slot.start_at = float("inf")
            log.warning("process.failed", code=code, hint="waits for a change of the code")
        elif code == USAGE:  # the command itself is wrong: it will be wrong again
            slot.ended = code
            self._stop()
        else:
            slot.failures = slot.failures + 1 if now - slot.started < STEADY else 1
            delay = min(LONGEST_WAIT, 0.25 * 2 ** min(slot.failures - 1, 10))
            slot.start_at = now + delay
            log.warning("process.exited", code=code, restart_in_s=delay)

    # -- all of them ------------------------------------------------------------------------------------------------
    def _reload(self) -> None:
        log.info("code.changed", hint="restarting")
        for slot in self._slots:
            slot.ended, slot.start_at = None, time.monotonic()
            if slot.process is not None and slot.reloading is None:
                slot.reloading = time.monotonic()
                self._end(slot)

    def _stop(self) -> None:
        """Pass a signal on, always as SIGTERM: one that comes before a child listens then ends it without a word.
        From the third one on nobody is asked any more."""
        self._signals += 1
        for slot in self._slots:
            if slot.process is not None:
                self._end(slot) if self._signals < 3 else slot.process.kill()

    def _hang_up(self) -> None:
        """Let all of them read their policies again."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.send_signal(signal.SIGHUP)

    @contextmanager
    def _passing_signals_on(self) -> Iterator[None]:
        def passed_on(number: int, _frame: FrameType | None) -> None:
            self._hang_up() if number == signal.SIGHUP else self._stop()

        numbers = [signal.SIGTERM, signal.SIGINT] + [signal.SIGHUP] * (not sighup_stops_us())
        before = {number: signal.signal(number, passed_on) for number in numbers}
        try:
            yield
        finally:
            for slot in self._slots:
                if slot.process is not None:
                    slot.process.kill()
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _hang_ups_held_back() -> Iterator[None]:
    """A child that is started here is not ended by one that comes before it listens: it lets them in itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""A parent that keeps worker processes running: it starts them, forwards signals, and replaces lost ones.

    start ──► running ──ended with 0──────────► done
      ▲          ├──ended otherwise──► waits ──┐
      └──────────┴──reload─────────────────────┘      after a stop signal nothing is started again

Each child is in its own process group, so that Ctrl-C reaches only the parent, which forwards it once. Otherwise each child
would get two signals, and the second one means "at once". SIGHUP is forwarded too: it makes children read their policies again.
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
from holdfast.logging import Log
from holdfast.signals import AFTER_GRACE, sighup_stops_us, signal_when_parent_ends

log = Log("holdfast.supervisor")

MARKER = "HOLDFAST_SUPERVISOR"  #: gives a child the process id of its parent and a pipe to it
TICK = 0.05
STEADY = 10.0  #: a child that ran this long did not fail at its start
LONGEST_WAIT = 30.0
PATIENCE = 5.0  #: how long a reload waits for a child before it sends the signal again
OVERDUE = 1.0  #: a child that should have ended is killed this much later
_to_parent: list[int] = []


def die_with_parent() -> None:
    """Send this process SIGTERM when its supervisor ends, even by SIGKILL. It does nothing without a supervisor."""
    parent, _, pipe = os.environ.pop(MARKER, "").partition(":")
    if not parent:
        return
    os.set_inheritable(int(pipe), False)
    _to_parent.append(int(pipe))
    if (
        not sighup_stops_us()
    ):  # a request to read the policies again, which this process handles later or not at all
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    signal_when_parent_ends(signal.SIGTERM)
    if os.getppid() != int(parent):  # the parent ended before the arrangement
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
    reloading: float | None = None  #: when the signal for a reload was sent
    ended: int | None = field(default=None)  #: its exit code, once it will not be started again


class Supervisor:
    """Runs and replaces worker processes.

    *changed* returns whether the code has changed; without it nothing is reloaded. *own* returns the arguments
    of the child at a place that the others do not have.
    """

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
        """Keep the children running until all have ended for good, and return the exit code."""
        with self._forwarding_signals():
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
        bad = [code for code in codes if code != -signal.SIGTERM]  # stopped before it handled signals
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
        """Send SIGTERM to a child, and set when it will be killed: C code that holds the interpreter handles no signal."""
        assert slot.process is not None
        slot.kill_at = min(slot.kill_at, time.monotonic() + self._listen(slot) + OVERDUE)
        slot.process.terminate()

    def _listen(self, slot: _Slot) -> float:
        """Return how long a stop of this child may take, as it has reported.

        The report is read once, because a second signal does not wait for the grace period. A child that has not reported yet
        does not handle signals either, so the first one ends it.
        """
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
        with _sighup_blocked():
            slot.process = subprocess.Popen(
                [*self._command, *slot.own],
                env=os.environ | {MARKER: f"{os.getpid()}:{theirs}"},
                process_group=0,
                pass_fds=[theirs],
            )
        os.close(theirs)
        slot.started = time.monotonic()
        if self._signals:  # the stop came while it was being started
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
        elif code == USAGE:  # the command itself is wrong, and would fail again
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
        """Forward a signal to all children, as SIGTERM: it also ends a child that does not handle signals yet.

        From the third signal on children are killed.
        """
        self._signals += 1
        for slot in self._slots:
            if slot.process is not None:
                self._end(slot) if self._signals < 3 else slot.process.kill()

    def _hang_up(self) -> None:
        """Send SIGHUP to all children, so that they read their policies again."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.send_signal(signal.SIGHUP)

    @contextmanager
    def _forwarding_signals(self) -> Iterator[None]:
        def forward(number: int, _frame: FrameType | None) -> None:
            self._hang_up() if number == signal.SIGHUP else self._stop()

        numbers = [signal.SIGTERM, signal.SIGINT] + [signal.SIGHUP] * (not sighup_stops_us())
        before = {number: signal.signal(number, forward) for number in numbers}
        try:
            yield
        finally:
            for slot in self._slots:
                if slot.process is not None:
                    slot.process.kill()
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _sighup_blocked() -> Iterator[None]:
    """Block SIGHUP inside the block. A child started there inherits this, and unblocks the signal when it can handle it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""Log the handler that blocks the event loop, and with it everything else in the worker, even SIGTERM.

A thread pings the loop every half second. If no answer comes within a second, it logs what the loop is
running, once per task.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from holdfast.engine.context import Job
from holdfast.engine.tracebacks import file_name
from holdfast.jobs.machine import Threads
from holdfast.logging import Log

log = Log("holdfast.worker")

#: Seconds between two pings, and how long the loop may take to answer one.
ASK_EVERY, ANSWER_WITHIN = 0.5, 1.0
#: If the loop runs no handler, the whole process may have been stopped. It gets this many more seconds to
#: answer.
GRACE = 0.25

#: Returns the job whose attempt is this asyncio task, and its handler.
Attempt = Callable[["asyncio.Task[Any] | None"], tuple[Job, Callable[..., Any]] | None]


class Watchdog:
    """Watches the running event loop until `stop`.

    *attempt* returns the job and handler of an asyncio task.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt, self._loop = attempt, asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stop, self._answered = threading.Event(), threading.Event()
        self._reported: set[str] = set()

    def start(self, threads: Threads) -> None:
        """Start the watching thread."""
        threads.start("holdfast-watchdog", self._run)

    def stop(self) -> None:
        """End the watching thread."""
        self._stop.set()
        self._answered.set()

    def _run(self) -> None:
        while not self._stop.wait(ASK_EVERY):
            self._answered.clear()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop was closed
                return
            # A loop, because one blocking handler may follow another without an answer.
            while not self._answered.wait(ANSWER_WITHIN):
                if self._stop.is_set():  # `stop` came between the wait above and `clear`
                    return
                self._check()

    def _check(self) -> None:
        attempt = self._attempt(asyncio.current_task(self._loop))
        if attempt is None:
            if not self._answered.wait(GRACE):
                self._report(self._location(None))
            return
        job, handler = attempt
        self._report(self._location(handler), job)

    def _report(self, at: str, job: Job | None = None) -> None:
        name = at if job is None else job.task
        if name in self._reported:
            return
        self._reported.add(name)
        log.warning(
            "event_loop.blocked",
            task=None if job is None else job.task,
            job_id=None if job is None else job.id,
            at=at,
            hint="it runs nothing else meanwhile; await what blocks, or write the task as a plain def, which runs in a thread",
        )

    def _location(self, handler: Callable[..., Any] | None) -> str:
        """Return the current line of the loop's thread, in the handler's own file if possible."""
        frame = sys._current_frames().get(self._thread)
        own_file = getattr(getattr(handler, "__code__", None), "co_filename", None)
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_filename != own_file:
            caller = caller.f_back
        chosen = caller or frame
        if chosen is None:
            return "unknown"
        return f"{file_name(chosen.f_code.co_filename)}:{chosen.f_lineno} in {chosen.f_code.co_qualname}"

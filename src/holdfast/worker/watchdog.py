"""Names the handler that holds the event loop: nothing else of its worker runs meanwhile, not even the answer to SIGTERM.

A thread asks the loop for a sign of life every half second. Where none comes for a second, it looks at what the loop
is running and logs it, once for each task.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from holdfast.engine.context import Job
from holdfast.engine.ports import Threads
from holdfast.engine.tracebacks import file_name
from holdfast.logs import Log

log = Log("holdfast.worker")

#: Seconds between two questions, and how long the loop may take to answer one.
ASK_EVERY, ANSWER_WITHIN = 0.5, 1.0
#: What is no handler of ours may be a process that was stopped as a whole: it is given this much longer.
BENEFIT = 0.25

#: Gives the job whose attempt is this asyncio task, and its handler.
Attempt = Callable[["asyncio.Task[Any] | None"], tuple[Job, Callable[..., Any]] | None]


class Watchdog:
    """Watches the running event loop until `stop`. *attempt* gives the job that an asyncio task belongs to."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt, self._loop = attempt, asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stop, self._turned = threading.Event(), threading.Event()
        self._named: set[str] = set()

    def start(self, threads: Threads) -> None:
        threads.start("holdfast-watchdog", self._run)

    def stop(self) -> None:
        self._stop.set()
        self._turned.set()

    def _run(self) -> None:
        while not self._stop.wait(ASK_EVERY):
            self._turned.clear()
            try:
                self._loop.call_soon_threadsafe(self._turned.set)
            except RuntimeError:  # the loop was closed
                return
            while not self._turned.wait(ANSWER_WITHIN):  # one may follow another without a turn of the loop
                if self._stop.is_set():  # `stop` came between the wait above and `clear`
                    return
                self._look()

    def _look(self) -> None:
        found = self._attempt(asyncio.current_task(self._loop))
        if found is None:
            if not self._turned.wait(BENEFIT):
                self._tell(self._place(None))
            return
        job, handler = found
        self._tell(self._place(handler), job)

    def _tell(self, at: str, job: Job | None = None) -> None:
        name = at if job is None else job.task
        if name in self._named:
            return
        self._named.add(name)
        log.warning(
            "event_loop.blocked",
            task=None if job is None else job.task,
            job_id=None if job is None else job.id,
            at=at,
            hint="it runs nothing else meanwhile; await what blocks, or write the task as a plain def, which runs in a thread",
        )

    def _place(self, handler: Callable[..., Any] | None) -> str:
        """Return where the loop's thread is now: in the handler's own file if possible, else in what was called last."""
        frame = sys._current_frames().get(self._thread)
        own = getattr(getattr(handler, "__code__", None), "co_filename", None)
        seen: FrameType | None = frame
        while seen is not None and seen.f_code.co_filename != own:
            seen = seen.f_back
        shown = seen or frame
        if shown is None:
            return "unknown"
        return f"{file_name(shown.f_code.co_filename)}:{shown.f_lineno} in {shown.f_code.co_qualname}"

"""CPU-bound handlers in child processes, which a timeout, a cancel or a shutdown can kill.

A child is started when one is needed and kept for the next job. It is ready only after it has imported the
handler by name, so the start of a process does not count toward the timeout of an attempt.

    started ──► preparing ──► ready ──► runs a handler ──► ready …
                    │                        └─ after many jobs or with much memory it is replaced by a new one
                    └─ if its caller stops waiting it goes on preparing, for the next caller
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Executor
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from holdfast.attempt_log import AttemptLog
from holdfast.engine.tracebacks import carry, raised_of
from holdfast.errors import UsageError
from holdfast.jobs.tracebacks import Raised
from holdfast.signals import signal_when_parent_ends
from holdfast.tasks.main_guard import importing
from holdfast.worker.log_capture import capture_logs_in_child

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from holdfast.tasks.task import Task
    from holdfast.worker.attempts import RunningAttempt


#: A handler by name: its module and its qualified name there.
HandlerName = tuple[str, str]

#: How many seconds a child may take to become ready for an attempt with a hard timeout. The store counts the
#: timeout from the claim with a margin. Within that margin the handler has its full time; beyond it the job
#: is released.
COLD_START = 3.0
#: After how many seconds a child process that is still not ready is killed.
READY_WITHIN = 60.0


class ChildEnded(RuntimeError):
    """The child process of a handler ended without a result."""


class ChildNotReady(RuntimeError):
    """The child process is not ready, and this attempt cannot wait longer."""


class ProcessPool:
    """Child processes that run handlers, kept for reuse.

    Args:
        threads: The threads that talk to the children.
        keep_logs: Whether to capture what handlers log.
        most_jobs: After how many jobs a child is replaced. `None` means never.
        most_memory: Above how many bytes a child is replaced. `None` means never.
    """

    def __init__(
        self,
        threads: Executor,
        *,
        keep_logs: bool = True,
        most_jobs: int | None = None,
        most_memory: int | None = None,
    ) -> None:
        self._threads, self._keep_logs = threads, keep_logs
        self._most_jobs, self._most_memory = most_jobs, most_memory
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    async def take(self, task: Task[Any, Any], ready_within: float | None) -> _Child:
        """Return a child that is ready to run the handler of *task*.

        Raises:
            ChildNotReady: It was not ready after *ready_within* seconds. It goes on preparing for a later
                attempt.
            ChildEnded: It ended instead of becoming ready.
        """
        function = task.function
        handler_name = function.__module__, function.__qualname__
        child = self._pick(handler_name)
        try:
            async with asyncio.timeout(ready_within):
                outcome, value = await self._ready(child, handler_name)
        except (TimeoutError, asyncio.CancelledError) as error:
            self.give(child)
            if isinstance(error, TimeoutError):
                raise ChildNotReady(
                    f"the process of {task.name} was not ready after {ready_within} s"
                ) from None
            raise
        match outcome:
            case "ready":
                return child
            case "raised":
                self.give(child)
                raise _as_raised(value)
        self._drop(child)
        raise ChildEnded(f"the process of {task.name} {value}")

    def give(self, child: _Child) -> None:
        """Return *child* to the pool."""
        if child in self._all:
            self._idle.append(child)

    def _pick(self, handler_name: HandlerName) -> _Child:
        """Return an idle child, or a new one.

        One that knows the handler is best, then one that prepares nothing.
        """
        for child in [idle for idle in self._idle if idle.preparing is None and not idle.alive]:
            self._idle.remove(child)
            self._drop(child)
        if not self._idle:
            return self._start()
        child = max(self._idle, key=lambda idle: (handler_name in idle.known, idle.preparing is None))
        self._idle.remove(child)
        return child

    async def _ready(self, child: _Child, handler_name: HandlerName) -> tuple[str, Any]:
        """Wait until the child can run this handler or is known not to, and return the outcome.

        The child may still be preparing another handler; that is awaited first.
        """
        outcome, value = "ready", None
        while handler_name not in child.known and outcome != "ended":
            if child.preparing is None:
                loop = asyncio.get_running_loop()
                child.preparing = (
                    handler_name,
                    loop.run_in_executor(self._threads, child.prepare, handler_name),
                )
            prepared, preparing = child.preparing
            outcome, value = await asyncio.shield(preparing)
            child.preparing = None
            if outcome == "ready":
                child.known.add(prepared)
            elif prepared == handler_name:
                break
        return outcome, value

    async def call(
        self,
        child: _Child,
        task: Task[Any, Any],
        args: list[Any],
        kwargs: dict[str, Any],
        running: RunningAttempt,
    ) -> Any:
        """Run the handler in *child* and return its result, or raise what it raised.

        If the call is cancelled, the child is killed.

        Raises:
            ChildEnded: The child ended without a result.
        """
        function = task.function
        running.kill = child.kill
        loop = asyncio.get_running_loop()
        level = logging.getLogger().getEffectiveLevel() if self._keep_logs else None
        request = (function.__module__, function.__qualname__, (args, kwargs, level))
        try:
            outcome, value, lines = await loop.run_in_executor(self._threads, child.ask, request)
        except BaseException:
            self._drop(child)
            raise
        finally:
            running.kill = None
        if outcome == "ended":
            self._drop(child)
            raise ChildEnded(f"the process of {task.name} {value}")
        child.jobs += 1
        self._drop(child) if self._is_worn(child) else self.give(child)
        for line in lines:
            running.job.attempt_log().keep(line)
        if outcome == "raised":
            raise _as_raised(value)
        return value

    def _is_worn(self, child: _Child) -> bool:
        jobs, memory = self._most_jobs, self._most_memory
        return (jobs is not None and child.jobs >= jobs) or (memory is not None and child.memory() > memory)

    def _start(self) -> _Child:
        child = _Child()
        self._all.add(child)
        return child

    def _drop(self, child: _Child) -> None:
        child.kill()
        self._all.discard(child)

    def close(self) -> None:
        """Kill all children."""
        for child in list(self._all):
            self._drop(child)
        self._idle.clear()


class _Child:
    """One child process and the pipe to it."""

    def __init__(self) -> None:
        self.known: set[HandlerName] = set()  #: the handlers it is ready to run
        self.jobs = 0  #: how many it has run
        self.preparing: tuple[HandlerName, asyncio.Future[tuple[str, Any]]] | None = None
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def memory(self) -> int:
        """Return its resident memory in bytes, or 0 if the system does not report it."""
        try:
            with open(f"/proc/{self._process.pid}/statm", "rb") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def prepare(self, handler_name: HandlerName) -> tuple[str, Any]:
        """Import the handler in the child and return the outcome. Blocks: call it in a thread."""
        try:
            self._pipe.send((*handler_name, None))
            if not self._pipe.poll(READY_WITHIN):
                self._process.kill()
                return "ended", f"was not ready after {READY_WITHIN:.0f} s"
            outcome, value, _ = self._pipe.recv()
            return outcome, value
        except (EOFError, OSError):
            return "ended", self._end()

    def ask(self, request: tuple[Any, ...]) -> tuple[str, Any, tuple[str, ...]]:
        """Send one call and return its outcome, value and log lines. Blocks: call it in a thread."""
        try:
            self._pipe.send(request)
            return self._pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            return "ended", self._end(), ()

    def _end(self) -> str:
        self._process.join(1)
        code = self._process.exitcode
        return (
            f"ended with signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        )

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(5)
        self._pipe.close()


def _serve(pipe: Connection, parent: int) -> None:
    """Answer calls in the child process until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal_when_parent_ends(signal.SIGKILL)  # C code that holds the GIL would not let the thread below run
    threading.Thread(target=_end_with_parent, name="holdfast-parent", daemon=True).start()
    while True:
        try:
            module, name, call = pipe.recv()
        except (EOFError, OSError):
            return
        log = AttemptLog()
        answer: tuple[str, Any] = ("ready", None)
        try:
            function = _find(module, name)  # before the capture: its module may configure logging
            if call is not None:
                args, kwargs, level = call
                with capture_logs_in_child(log, level):
                    answer = ("returned", _call(function, args, kwargs))
        except BaseException as error:
            answer = ("raised", _portable(error))
        if os.getppid() != parent:
            os._exit(0)
        try:
            pipe.send((*answer, log.lines()))
        except (TypeError, ValueError, AttributeError) as error:
            refused = TypeError(f"the result cannot be sent back: {error}")
            pipe.send(("raised", (refused, None), log.lines()))


def _end_with_parent() -> None:
    """End this child when the worker is killed: otherwise a long call would go on without one."""
    worker = multiprocessing.parent_process()
    if worker is not None:
        worker.join()
        os._exit(0)


def _find(module: str, name: str) -> Any:
    handler: Any = sys.modules.get(module)
    if handler is None:
        with importing(module):
            handler = importlib.import_module(module)
    for part in name.split("."):
        handler = getattr(handler, part, None)
    if handler is None:
        raise UsageError(
            f'a child process does not find {name}; define it outside of `if __name__ == "__main__":`, at the top of its module'
        )
    return getattr(handler, "function", handler)  # the name holds the Task; its function is what runs


def _call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    result = function(*args, **kwargs)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def _portable(error: BaseException) -> tuple[BaseException, Raised | None]:
    """Return *error* if it can be pickled, else a `RuntimeError` with its text, and its frames and causes."""
    import pickle

    try:
        raised = raised_of(error)
    except Exception:  # an exception whose own attributes raise
        raised = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}"), raised
    return error, raised


def _as_raised(answer: tuple[BaseException, Raised | None]) -> BaseException:
    """Return the exception of a child, with the place in the child where it was raised."""
    error, raised = answer
    if raised is not None:
        carry(error, raised)
    return error

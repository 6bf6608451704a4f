"""CPU-bound handlers in child processes, which can be killed: by a timeout, by a cancel, by a shutdown.

A child is started when one is needed and kept for the next job. It imports the handler by name, like any worker, and only
when it has done so it is ready: no attempt pays with its own time for the start of a process.

    started ──► preparing ──► ready ──► runs a handler ──► ready …
                    │                        └─ it has run many, or keeps much memory: it is ended, the next one is new
                    └─ nobody waits for it any longer: it goes on, for the next one who needs a child
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

from holdfast.domain.tracebacks import Raised
from holdfast.engine.attempt_log import AttemptLog
from holdfast.engine.main_guard import importing
from holdfast.engine.tracebacks import carry, raised_of
from holdfast.errors import UsageError
from holdfast.signals import signal_when_parent_ends
from holdfast.worker.log_capture import heard

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from holdfast.engine.tasks import Task
    from holdfast.worker.attempts import RunningAttempt


#: A handler by name: its module and its place there.
Where = tuple[str, str]

#: How long a child may take to be ready for an attempt with a hard timeout. The store counts that from the claim, and allows
#: somewhat more; within that margin the handler has all of its time. Beyond it the job is given back.
COLD_START = 3.0
#: How many seconds a child process has to become ready.
PATIENCE = 60.0


class ChildEnded(RuntimeError):
    """The child process of a handler ended without an answer."""


class ChildNotReady(RuntimeError):
    """The child process is still on its way, and this attempt cannot wait for it."""


class ProcessPool:
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

    async def take(self, task: Task[Any, Any], patience: float | None) -> _Child:
        """A child that is ready to run the handler. `ChildNotReady` after *patience* seconds; it goes on becoming ready."""
        function = task.function
        where = function.__module__, function.__qualname__
        child = self._pick(where)
        try:
            async with asyncio.timeout(patience):
                outcome, value = await self._ready(child, where)
        except (TimeoutError, asyncio.CancelledError) as error:
            self.give(child)
            if isinstance(error, TimeoutError):
                raise ChildNotReady(f"the process of {task.name} was not ready after {patience} s") from None
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
        """For the next one who needs a child."""
        if child in self._all:
            self._idle.append(child)

    def _pick(self, where: Where) -> _Child:
        """One that is ready, else one that nobody waits for, else a new one."""
        for child in [idle for idle in self._idle if idle.preparing is None and not idle.alive]:
            self._idle.remove(child)
            self._drop(child)
        if not self._idle:
            return self._start()
        child = max(self._idle, key=lambda idle: (where in idle.known, idle.preparing is None))
        self._idle.remove(child)
        return child

    async def _ready(self, child: _Child, where: Where) -> tuple[str, Any]:
        """Until the child can run this handler, or is known not to. It may have begun with another one's."""
        outcome, value = "ready", None
        while where not in child.known and outcome != "ended":
            if child.preparing is None:
                loop = asyncio.get_running_loop()
                child.preparing = where, loop.run_in_executor(self._threads, child.prepare, where)
            what, under_way = child.preparing
            outcome, value = await asyncio.shield(under_way)
            child.preparing = None
            if outcome == "ready":
                child.known.add(what)
            elif what == where:
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
        """Run the handler in this *child*; if the wait is cancelled, the child is killed."""
        function = task.function
        running.kill = child.kill
        loop = asyncio.get_running_loop()
        level = logging.getLogger().getEffectiveLevel() if self._keep_logs else None
        request = (function.__module__, function.__qualname__, (args, kwargs, level))
        try:
            outcome, value, said = await loop.run_in_executor(self._threads, child.ask, request)
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
        for line in said:
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
        for child in list(self._all):
            self._drop(child)
        self._idle.clear()


class _Child:
    def __init__(self) -> None:
        self.known: set[Where] = set()  #: the handlers it is ready to run
        self.jobs = 0  #: how many it has run
        self.preparing: tuple[Where, asyncio.Future[tuple[str, Any]]] | None = None
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def memory(self) -> int:
        """How many bytes it has in memory; 0 where the system does not tell."""
        try:
            with open(f"/proc/{self._process.pid}/statm", "rb") as told:
                return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def prepare(self, where: Where) -> tuple[str, Any]:
        """Have it import the handler, and wait until it has; runs in a thread."""
        try:
            self._pipe.send((*where, None))
            if not self._pipe.poll(PATIENCE):
                self._process.kill()
                return "ended", f"was not ready after {PATIENCE:.0f} s"
            outcome, value, _ = self._pipe.recv()
            return outcome, value
        except (EOFError, OSError):
            return "ended", self._end()

    def ask(self, request: tuple[Any, ...]) -> tuple[str, Any, tuple[str, ...]]:
        """Send one call and wait for its end; runs in a thread."""
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
    """The child's whole life: answer calls until the parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal_when_parent_ends(
        signal.SIGKILL
    )  # C code that holds the interpreter would not let the thread below run
    threading.Thread(target=_end_with_parent, name="holdfast-parent", daemon=True).start()
    while True:
        try:
            module, name, call = pipe.recv()
        except (EOFError, OSError):
            return
        log = AttemptLog()
        answer: tuple[str, Any] = ("ready", None)
        try:
            function = _find(module, name)  # its module may set up logging, and must find it untouched
            if call is not None:
                args, kwargs, level = call
                with heard(log, level):
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
    """A worker that was killed could not kill its children: without this, a long call would go on for nobody."""
    worker = multiprocessing.parent_process()
    if worker is not None:
        worker.join()
        os._exit(0)


def _find(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    if found is None:
        with importing(module):
            found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise UsageError(
            f'a child process does not find {name}; define it outside of `if __name__ == "__main__":`, at the top of its module'
        )
    return getattr(found, "function", found)  # the name holds the Task; its function is what runs


def _call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    result = function(*args, **kwargs)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def _portable(error: BaseException) -> tuple[BaseException, Raised | None]:
    """*error* if it survives the way to the parent, else a plain one that says the same; and what it leaves behind on the
    way: its frames and its causes."""
    import pickle

    try:
        raised = raised_of(error)
    except Exception:  # an exception that cannot even be looked at
        raised = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}"), raised
    return error, raised


def _as_raised(answer: tuple[BaseException, Raised | None]) -> BaseException:
    """The exception of a child, knowing where in the child it was raised."""
    error, raised = answer
    if raised is not None:
        carry(error, raised)
    return error

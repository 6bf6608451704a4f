"""CPU-bound handlers in child processes, which can be killed: by a timeout, by a cancel, by a shutdown.

A child is started when one is needed and kept for the next job. It imports the handler by name, like any worker.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Executor
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from holdfast.engine.tasks import Task
    from holdfast.worker.attempts import Running


class ChildEnded(RuntimeError):
    """The child process of a handler ended without an answer."""


class ProcessPool:
    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    async def call(
        self, task: Task[Any, Any], args: list[Any], kwargs: dict[str, Any], running: Running
    ) -> Any:
        """Run the handler in a child; if the wait is cancelled, the child is killed."""
        function = task.function
        if "<locals>" in function.__qualname__:
            raise UsageError(f"{task.name} runs in a process, so it must be defined at the top of a module")
        child = self._idle.pop() if self._idle else self._start()
        running.kill = child.kill
        loop = asyncio.get_running_loop()
        request = (function.__module__, function.__qualname__, args, kwargs)
        try:
            outcome, value = await loop.run_in_executor(self._threads, child.ask, request)
        except BaseException:
            self._drop(child)
            raise
        finally:
            running.kill = None
        if outcome == "ended":
            self._drop(child)
            raise ChildEnded(f"the process of {task.name} ended with {value}")
        self._idle.append(child)
        if outcome == "raised":
            raise value
        return value

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
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, request: tuple[Any, ...]) -> tuple[str, Any]:
        """Send one call and wait for its end; runs in a thread."""
        try:
            self._pipe.send(request)
            return self._pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            self._process.join(1)
            code = self._process.exitcode
            return "ended", f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(5)
        self._pipe.close()


def _serve(pipe: Connection, parent: int) -> None:
    """The child's whole life: answer calls until the parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="holdfast-parent", daemon=True).start()
    while True:
        try:
            module, name, args, kwargs = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = ("returned", _call(module, name, args, kwargs))
        except BaseException as error:
            answer = ("raised", _portable(error))
        if os.getppid() != parent:
            os._exit(0)
        try:
            pipe.send(answer)
        except (TypeError, ValueError, AttributeError) as error:
            pipe.send(("raised", TypeError(f"the result cannot be sent back: {error}")))


def _end_with_parent() -> None:
    """A worker that was killed could not kill its children: without this, a long call would go on for nobody."""
    worker = multiprocessing.parent_process()
    if worker is not None:
        worker.join()
        os._exit(0)


def _call(module: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    function = getattr(found, "function", found)  # the name holds the Task; its function is what runs
    result = function(*args, **kwargs)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def _portable(error: BaseException) -> BaseException:
    """*error* if it survives the way to the parent, else a plain one that says the same."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

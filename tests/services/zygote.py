"""Processes of ours, started in milliseconds: forked from one that has imported everything already.

The suite starts some hundred workers, web apps and commands, and most of what each costs is its imports. `Process` and
`run` take what `subprocess.Popen` and `subprocess.run` take, for `python -m …` and `python -c …`, and give the same. Only
what is not ours differs: its modules are there before it begins and are not taken apart at its end, the collector comes
seldom, its command line in /proc is the zygote's, and it is a child of the zygote, which tells how it has ended. Where that
matters, use `subprocess`.

    tests ──command, environment, fds──▶ zygote ──fork──▶ the process
      ▲                                    │
      └──────how it ended, by a pipe───────┘

Each test process has a zygote of its own. After `share` they are forked from one, which has imported once for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, AnyStr, NoReturn

ROOT = Path(__file__).parents[2]
#: Read their settings from the environment while they are imported, or do something at once.
_NOT_BEFORE = ("app", "__main__")
_CELERY = ("celery.bin.celery", "celery.apps.worker", "celery.concurrency.thread", "kombu.transport.pyamqp")
_WEB = ("fastapi", "uvicorn", "uvicorn.protocols.http.httptools_impl", "uvicorn.lifespan.on", "httpx2")
_MESSAGE = 1 << 18


class Process(subprocess.Popen[AnyStr]):
    """`Popen` of `[sys.executable, "-m" or "-c", …]`."""

    _news: int  #: where its end is told

    def _execute_child(self, *given: Any) -> None:
        told = _PARAMETERS.bind(self, *given).arguments
        assert not any(told[beyond] for beyond in ("preexec_fn", "pass_fds", "shell")), "not for the zygote"
        ends = [told[end] for end in ("p2cread", "c2pwrite", "errwrite")]
        order = {
            "argv": [os.fspath(word) for word in told["args"]][1:],
            "cwd": os.fspath(told["cwd"] or os.getcwd()),
            "env": dict(os.environ if told["env"] is None else told["env"]),
            "session": bool(told["start_new_session"]),
        }
        self._news, writer = os.pipe()
        try:
            streams: list[int] = [end if end >= 0 else number for number, end in enumerate(ends)]
            self.pid = _zygote.ask(order, [*streams, writer])
        except BaseException:
            os.close(self._news)
            raise
        finally:
            os.close(writer)
        self._child_created = True
        self._close_pipe_fds(*(told[name] for name in _PIPES))  # type: ignore[attr-defined]

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        if self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                self._hear(0)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            self._hear(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _hear(self, timeout: float | None) -> None:
        if self.returncode is not None:
            return
        news = select.poll()
        news.register(self._news)
        if news.poll(None if timeout is None else 1000 * timeout):
            said = os.read(self._news, 32)
            os.close(self._news)
            self.returncode = int(said or -signal.SIGKILL)  # without a word: the zygote was killed


_PARAMETERS = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    input: str | None = None,  # noqa: A002 - the name that subprocess.run gives it
    timeout: float = 120,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run(capture_output=True, text=True)`."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    with Process(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    ) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Zygote:
    """The one of this process, from the first order to the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours: socket.socket | None = None
        self._orders = 0
        self.pid = 0

    def ask(self, order: dict[str, Any], fds: list[int]) -> int:
        with self._lock:
            if self._ours is None:
                self._ours, self.pid = self._begin()
            self._orders += 1
            socket.send_fds(self._ours, [json.dumps(order | {"number": self._orders}).encode()], fds)
            while True:
                answer = self._ours.recv(64)
                assert answer, "the zygote has died"
                number, pid = map(int, answer.split())
                if number == self._orders:
                    return pid
                os.kill(pid, signal.SIGKILL)  # of a test that was stopped before its process was there

    def _begin(self) -> tuple[socket.socket, int]:
        ours, its = _pair()
        with its:
            if _mother is None:
                _start(its)
            else:
                socket.send_fds(_mother, [b"another"], [its.fileno()])
        pid = ours.recv(64)
        assert pid, "the zygote has died"
        return ours, int(pid)

    def end(self) -> None:
        with self._lock:
            if self._ours is not None:
                self._ours.close()
                self._ours = None


_zygote = _Zygote()
_mother: socket.socket | None = None  #: of the zygotes of all processes that are forked from this one


def share() -> None:
    """For this process and those forked from it from now on: one imports, and their zygotes are forked from it."""
    global _mother
    _mother, its = _pair()
    with its:
        _start(its, "mother")


def close() -> None:
    """When the last test has ended."""
    _zygote.end()
    if _mother is not None:
        _mother.close()
    for process in _started:
        process.wait()


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _start(its: socket.socket, *words: str) -> None:
    command = [sys.executable, "-m", __spec__.name, str(its.fileno()), *words]
    _started.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()]))


def _disown() -> None:
    """In a forked process: they are its parent's to wait for."""
    for process in _started:
        process.returncode = 0
    _started.clear()


_started: list[subprocess.Popen[bytes]] = []
os.register_at_fork(after_in_child=_disown)


# -- the zygote's own life -----------------------------------------------------------------------------------------------------
def _bear(asked: socket.socket) -> socket.socket | None:
    """The mother: a zygote for each socket that comes. Answers in the zygote: with its socket; in the mother at the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    while True:
        data, fds, _, _ = socket.recv_fds(asked, 64, 1)
        if not data:
            return None
        _warm_up([])
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            return socket.socket(fileno=fds[0])
        os.close(fds[0])


def _serve(orders: socket.socket) -> dict[str, Any] | None:
    """Fork for each order. Answers in the forked process: with what it is to run; in the zygote at the end: with nothing."""
    orders.send(str(os.getpid()).encode())
    running: dict[int, tuple[int, int]] = {}  #: by what tells of its end: its id, and whom to tell
    while True:
        for ready in select.select([orders.fileno(), *running], [], [])[0]:
            if ready in running:
                _tell_end(ready, *running.pop(ready))
                continue
            data, fds, _, _ = socket.recv_fds(orders, _MESSAGE, 4)
            if not data:
                return None
            order: dict[str, Any] = json.loads(data)
            _warm_up(order["argv"])
            pid = os.fork()
            if pid == 0:
                orders.close()
                for fd in (fds.pop(), *running, *(writer for _, writer in running.values())):
                    os.close(fd)
                if order["session"]:
                    os.setsid()
                _become(order, fds)
                return order
            running[os.pidfd_open(pid)] = pid, fds.pop()
            for fd in fds:
                os.close(fd)
            try:
                orders.send(f"{order['number']} {pid}".encode())
            except OSError:  # the tests were ended meanwhile
                os.kill(pid, signal.SIGKILL)
                return None


def _tell_end(ended: int, pid: int, writer: int) -> None:
    os.close(ended)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # whoever wanted to know has gone
        os.write(writer, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(writer)


def _warm_up(argv: list[str]) -> None:
    """Import what the process will, once: all of ours and of the system that is named, and what they are built on."""
    named = {".".join(word.split(".")[:2]) for word in argv if word.startswith("systems.")}
    wanted = {
        "holdfast",
        *named,
        *(("systems.common", *_WEB) if named else ()),
        *(_CELERY if "celery" in argv else ()),
    }
    if missing := wanted - _warm:
        gc.disable()  # what is imported stays: looking through it again and again is a waste
        for name in missing:
            _import_all(name)
        _warm.update(missing)
        gc.collect()
        gc.freeze()
        gc.enable()


_warm: set[str] = set()


def _import_all(name: str) -> None:
    module = importlib.import_module(name)
    if not name.startswith(("holdfast", "systems.")):
        return
    for part in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if part.name.rpartition(".")[2] not in _NOT_BEFORE:
            with contextlib.suppress(ImportError):  # an extra that is not installed
                _import_all(part.name)


def _become(order: dict[str, Any], fds: list[int]) -> None:
    """What the interpreter does at its start, as far as it depends on who starts it."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    os.chdir(order["cwd"])
    old_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    through = bool(order["env"].get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = _writing(1, through=through)
    sys.stderr = _writing(2, through=through)
    new_path = [place for place in order["env"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [order["cwd"], *new_path, *(place for place in sys.path[1:] if place not in old_path)]


def _writing(number: int, *, through: bool) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="strict" if number == 1 else "backslashreplace",
        line_buffering=number == 2 or raw.isatty(),
        write_through=through,
    )


def _run(argv: list[str]) -> None:
    kind, subject, *words = argv
    if kind == "-m":
        sys.argv = [subject, *words]
        runpy.run_module(subject, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *words]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(subject, "<string>", "exec"), main.__dict__)


def _leave(argv: list[str]) -> NoReturn:
    """Run it, and end as the interpreter does, except that nothing is taken apart in memory: that is the zygote's, and each
    page of it would be copied for that, which takes longer than the process itself."""
    code = 0
    try:
        _run(argv)
    except SystemExit as leaving:
        code = _code(leaving.code)
    except KeyboardInterrupt:
        traceback.print_exc()
        code = -signal.SIGINT
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _code(given: object) -> int:
    if given is None or isinstance(given, int):
        return (given or 0) & 0xFF
    print(given, file=sys.stderr)
    return 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, whose end is ours
    gc.set_threshold(20_000, 20, 20)  # of what is forked, too: most of it lives for a second
    line: socket.socket | None = socket.socket(fileno=int(sys.argv[1]))
    if line is not None and "mother" in sys.argv:
        line = _bear(line)
    if line is not None and (order := _serve(line)) is not None:
        _leave(order["argv"])

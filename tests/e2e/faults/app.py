"""The tasks that the fault tests run in real worker processes. Each writes down when it starts and how it ends."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import re
import signal
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from holdfast import Fatal, Holdfast, Retry, current_job
from holdfast.policies import BreakerPolicy
from holdfast.values.duration import Duration
from tests.e2e.faults.journal import note
from tests.e2e.faults.relay_app import TOPIC, add_topic
from tests.e2e.faults.slow_start import linger

#: Of the messages that `tell` publishes.
KEYS = 5
QUICKLY = Retry(5, base="50ms", factor=1, jitter="none")


def _begin() -> str:
    job = current_job()
    note("start", job.id, epoch=job.epoch, attempt=job.attempt)
    return job.id


def _flag(name: str) -> Path:
    return Path(os.environ["FAULTS_FOLDER"]) / name


# -- on the loop ------------------------------------------------------------------------------------------------------
async def nothing() -> None:
    _begin()


async def echo(value: int) -> int:
    _begin()
    return value


async def gate(name: str) -> int:
    """Runs until the test makes a file of this name; gives the process that ran it."""
    job = _begin()
    try:
        while not _flag(name).exists():  # noqa: ASYNC110 - the test makes the file from another process
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        note("cancelled", job)
        raise
    return os.getpid()


async def stubborn(times: int) -> None:
    """Swallows this many cancellations; a negative number: all of them."""
    job = _begin()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note("cancelled", job)
            if times == 0:
                raise
            times -= 1


async def block_loop(seconds: float) -> int:
    """A blocking call in C on the event loop: it releases the GIL, but nothing else on the loop runs."""
    job = _begin()
    time.sleep(seconds)
    note("end", job)
    return os.getpid()


async def hold_everything(seconds: float) -> int:
    """A call in C that keeps the GIL: no thread of this process runs, the heartbeat's neither. Only at the first attempt."""
    job = _begin()
    if current_job().attempt == 1:
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    note("end", job)
    return os.getpid()


async def spin(seconds: float) -> int:
    """Pure Python on the event loop."""
    job, until, turns = _begin(), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turns += 1
    note("end", job)
    return turns


async def hold_loop(how: str) -> int:
    """The first attempt never lets the event loop go on, in one of several ways."""
    job = _begin()
    if current_job().attempt == 1:
        _HOLDS[how]()
    note("end", job)
    return os.getpid()


def _spin() -> None:
    while True:
        pass


_HOLDS: dict[str, Callable[[], Any]] = {
    "Python": _spin,
    "a sleep": lambda: time.sleep(3600),
    # C code that holds the interpreter: this lets signals in, the last one does not.
    "a regular expression": lambda: re.match("(a|a)*$", "a" * 60 + "b"),
    "C": lambda: deque(itertools.repeat(None), maxlen=0),
}


async def held_up(step: bool) -> str:
    """The first attempt blocks the loop until the test lets it go on; then it answers, or writes a *step* first."""
    job = current_job()
    _begin()
    if job.attempt == 1:
        while not _flag("go on").exists():
            time.sleep(0.01)
    if step:
        await job.step("once", lambda: f"by attempt {job.attempt}")
    return f"by attempt {job.attempt}"


async def fail() -> None:
    _begin()
    raise ConnectionError("the other side is away")


async def flaky(value: int) -> int:
    """Every fifth one fails the first time."""
    _begin()
    await asyncio.sleep(0.005)
    if value % 5 == 0 and current_job().attempt == 1:
        raise ConnectionError("the other side is away")
    return value


async def toil(value: int, seconds: float) -> int:
    """Takes its time. Every seventh fails the first time, every fortieth for good."""
    job = _begin()
    await asyncio.sleep(seconds)
    if value % 40 == 0:
        raise Fatal("not today")
    if value % 7 == 0 and current_job().attempt == 1:
        raise ConnectionError("the other side is away")
    note("end", job, epoch=current_job().epoch)
    return value


async def tell(value: int, seconds: float) -> int:
    """As `toil`, and tells others of its end in the transaction that ends it. Those of one key do that one after the other."""
    job = current_job()
    _begin()
    await asyncio.sleep(seconds)
    async with job.transaction(result=value) as connection:
        if not isinstance(
            connection, sqlite3.Connection
        ):  # where a file has one writer, nobody needs to be told
            await connection.execute("SELECT pg_advisory_xact_lock($1)", value % KEYS)
        name = f"{job.id}/{job.epoch}"
        await app.outbox.publish(TOPIC, value, key=str(value % KEYS), id=name, connection=connection)
        if value % 40 == 0:
            raise Fatal("not today")
        if value % 7 == 0 and job.attempt == 1:
            raise ConnectionError("the other side is away")
    note("end", job.id, epoch=job.epoch)
    return value


async def fatal() -> None:
    _begin()
    raise Fatal("not today")


async def fail_at(name: str) -> None:
    """Waits for the file, then fails."""
    _begin()
    while not _flag(name).exists():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    raise ConnectionError("the other side is away")


async def fail_when_cancelled() -> None:
    """As a library does that has an error of its own for being interrupted."""
    _begin()
    try:
        while not _flag("let go").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        raise ConnectionError("interrupted") from None
    raise ConnectionError("the other side is away")


async def call_service() -> str:
    """The service is down until the test says otherwise; then a call takes a moment, or hangs."""
    job = _begin()
    if not _flag("up").exists():
        raise ConnectionRefusedError("nobody listens")
    while _flag("hangs").exists():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)
    note("end", job)
    return "ok"


async def kill_worker() -> None:
    _begin()
    os.kill(os.getpid(), signal.SIGKILL)


async def hoard() -> None:
    """Takes ever more memory. Where nobody sets a bound, it ends at last as the kernel would have ended it."""
    _begin()
    kept: list[bytearray] = []
    while len(kept) < 600:
        kept.append(bytearray(b"x" * 1_000_000))
    os.kill(os.getpid(), signal.SIGKILL)


# -- in threads -------------------------------------------------------------------------------------------------------
def listening(seconds: float) -> str:
    """A thread that looks whether it was told to stop."""
    job, until = current_job(), time.monotonic() + seconds
    _begin()
    while time.monotonic() < until:
        if job.cancelled:
            note("told", job.id)
            return "told"
        time.sleep(0.02)
    return "done"


def deaf(name: str) -> str:
    """A thread that does not look, until the test makes the file."""
    job = _begin()
    while not _flag(name).exists():
        time.sleep(0.02)
    note("end", job)
    return "done"


# -- in processes -----------------------------------------------------------------------------------------------------
def burn(name: str, seconds: float) -> int:
    """Busy in a child process, with a sign of life every now and then."""
    until = time.monotonic() + seconds
    note("start", name)
    while time.monotonic() < until:
        sum(range(100_000))
        note("alive", name)
    return os.getpid()


def burn_in_c(name: str) -> None:
    """Holds the interpreter of a child process for ever."""
    note("start", name)
    deque(itertools.repeat(None), maxlen=0)


def make_app(url: str | None = None, **settings: Any) -> Holdfast:
    app = Holdfast(url, **settings)
    if app.runtime.settings.broker is not None:
        add_topic(app)
    tasks: tuple[Callable[..., Any], ...] = (
        nothing,
        echo,
        flaky,
        toil,
        tell,
        gate,
        stubborn,
        block_loop,
        hold_everything,
        spin,
        held_up,
        hold_loop,
        listening,
        deaf,
    )
    for function in tasks:
        app.task(retry=QUICKLY)(function)
    for function in cast(tuple[Callable[..., Any], ...], (fail, fatal, fail_at, fail_when_cancelled)):
        app.task(retry=Retry(3, base="50ms", factor=1, jitter="none"))(function)
    app.task(retry=QUICKLY, max_crashes=2)(kill_worker)
    app.task(retry=QUICKLY, max_crashes=2)(hoard)
    app.dependency("service", breaker=BreakerPolicy(window=10, min_calls=5, cooldown="2s"))
    app.task(retry=Retry(10, base="50ms", jitter="none"), timeout="10s", depends_on="service")(call_service)
    app.task(retry=Retry(3, base="1h", jitter="none"), name="fail_slowly")(fail)
    app.task(retry=QUICKLY, execute="process")(burn)
    app.task(retry=QUICKLY, execute="process")(burn_in_c)
    once: Retry = Retry(1)
    limit: Duration = "700ms"
    app.task(name="gate_limited", retry=once, timeout=limit)(gate)
    app.task(name="deaf_limited", retry=once, timeout=limit, execute="thread")(deaf)
    app.task(name="burn_limited", retry=once, timeout="2s")(burn)
    app.task(retry=once, timeout="1s")(linger)
    return app


app = make_app()

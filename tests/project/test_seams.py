"""Time, chance, ids and threads come in through `wiring.py` alone: a lint over the syntax trees of the package.

Whatever reads a clock of its own cannot be tested with ours, and cannot be replayed. What may, and why, is listed here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent

#: Files that are seams themselves, or are run by people at a terminal.
FREE = {
    "wiring.py": "the seam: it makes the clock, chance, ids and threads that everything else is given",
    "portal.py": "a loop in a thread, for callers without one",
    "logging.py": "stamps log lines as they are written",
    "client/environment.py": "the client's own seam: it lives in programs that have no wiring",
    "cli/": "front door: progress bars and supervisors live in real time",
    "testing/": "test kit: its clock is the manual one",
}

#: Name → why it is forbidden. A name ending in a dot covers everything behind it.
FORBIDDEN = {
    "time.": "ask Clock",
    "datetime.datetime.now": "ask Clock.now",
    "datetime.datetime.utcnow": "ask Clock.now",
    "datetime.datetime.today": "ask Clock.now",
    "datetime.datetime.fromtimestamp": "it reads the machine's zone; use times.moment",
    "datetime.date.today": "ask Clock.now",
    "random.": "ask Rng",
    "secrets.": "ask Rng or Ids",
    # uuid.UUID only reads one; these make one.
    "uuid.uuid1": "ask Ids",
    "uuid.uuid4": "ask Ids",
    "uuid.uuid6": "ask Ids",
    "uuid.uuid7": "ask Ids",
    "uuid.uuid8": "ask Ids",
    "uuid_utils.": "ask Ids",
    "os.urandom": "ask Ids",
    "os.getrandom": "ask Ids",
    "asyncio.sleep": "ask Clock.sleep (asyncio.sleep(0) only yields and is allowed)",
    "anyio.sleep": "ask Clock.sleep",
    "threading.": "ask Threads",
    "queue.": "its queues wait for threads; ask Threads",
    "concurrent.futures.ThreadPoolExecutor": "made by wiring.thread_pool",
    "concurrent.futures.ProcessPoolExecutor": "made by the process pool of the worker",
    "asyncio.to_thread": "give the work to an Executor",
    "_thread.": "ask Threads",
}
#: Methods of an event loop, known by their names alone: whose loop it is cannot be seen.
LOOP_METHODS = {"call_later", "call_at"}

#: (file, name) → the reason. One that is no longer needed is an error too.
ALLOWED = {
    ("stores/sqlite/writer.py", "threading.Lock"): "one commit at a time, also among sync callers' threads",
    ("stores/sqlite/writer.py", "queue.SimpleQueue"): "wakes the writer's thread from any thread",
    ("stores/sqlite/writer.py", "threading.Event"): "a sync caller waits for the commit that holds its write",
    (
        "worker/session.py",
        "threading.Event",
    ): "the heartbeat is sent by a thread so that a busy loop cannot starve it",
    (
        "worker/watchdog.py",
        "threading.Event",
    ): "a thread watches the loop, in real seconds: the loop cannot watch itself",
    ("worker/watchdog.py", "threading.get_ident"): "which stack is the loop's",
    (
        "worker/attempts.py",
        "call_later",
    ): "the hard timeout of an attempt: the work it cuts off runs in real seconds",
    (
        "server/connection.py",
        "call_later",
    ): "uvicorn makes the connection's object itself, and a client that drips does so in real seconds",
    (
        "stores/sqlite/notifier.py",
        "call_later",
    ): "the look for other processes' work: their work arrives in real seconds",
    (
        "stores/sqlite/connection.py",
        "threading.Event",
    ): "waits a moment for another process that sets the file up",
    ("attempt_log.py", "threading.Lock"): "a handler may speak from several threads",
    ("metrics/counts.py", "threading.Lock"): "callers enqueue from any thread",
    ("extension_set.py", "threading.Lock"): "two event loops may load the same extension",
    ("engine/engines.py", "threading.Lock"): "threads that come first at the same time share one store",
    ("stores/sqlite/database.py", "threading.Lock"): "and open its file once",
    ("runtime.py", "threading.Lock"): "threads that come first at the same time share one portal",
    (
        "stores/memory/database.py",
        "threading.RLock",
    ): "one transaction at a time, also among threads that enqueue in sync",
    ("worker/processes.py", "threading.Thread"): "in the child, which has no wiring: it ends with its parent",
}


class Use(NamedTuple):
    name: str
    line: int


def uses(tree: ast.AST) -> Iterator[Use]:
    """Every use of a forbidden name, under whatever name it was imported."""
    nodes = [*ast.walk(tree)]
    names = dict(_imported(nodes))
    harmless = {id(call.func) for call in nodes if isinstance(call, ast.Call) and _only_yields(call)}
    for_types = _for_types(nodes)
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and id(node) not in for_types:
            for alias in node.names:  # importing a forbidden thing itself is a use, whatever becomes of it
                full = f"{node.module}.{alias.name}"
                if _forbidden(full) and full != "asyncio.sleep":
                    yield Use(full, node.lineno)
        if not isinstance(node, (ast.Attribute, ast.Name)) or id(node) in inner:
            continue
        full_name = _full(node, names)
        if full_name == "asyncio.sleep" and id(node) in harmless:
            continue
        if full_name is not None and _forbidden(full_name):
            yield Use(full_name, node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr in LOOP_METHODS:
            yield Use(node.attr, node.lineno)


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """(name here, full name) of everything this file imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.partition(".")[0],
                    alias.name if alias.asname else (alias.name.partition(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full(node: ast.expr, names: dict[str, str]) -> str | None:
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=value, attr=attr):
            front = _full(value, names)
            return None if front is None else f"{front}.{attr}"
    return None


def _forbidden(name: str) -> bool:
    return name in FORBIDDEN or any(name.startswith(front) for front in FORBIDDEN if front.endswith("."))


def _only_yields(call: ast.Call) -> bool:
    return [a.value for a in call.args if isinstance(a, ast.Constant)] == [0] and not call.keywords


def _for_types(nodes: list[ast.AST]) -> set[int]:
    """What is imported under `if TYPE_CHECKING`: never run."""
    return {
        id(node)
        for branch in nodes
        if isinstance(branch, ast.If)
        and isinstance(branch.test, ast.Name)
        and branch.test.id == "TYPE_CHECKING"
        for node in branch.body
    }


def files() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.relative_to(SOURCE).as_posix().startswith(tuple(FREE))
    ]


@pytest.fixture(scope="module")
def found() -> list[tuple[str, Use]]:
    """(file, use) of everything that is not free to."""
    return [
        (path.relative_to(SOURCE).as_posix(), use)
        for path in files()
        for use in uses(ast.parse(path.read_text("utf-8")))
    ]


def test_time_chance_ids_and_threads_come_from_outside(found: list[tuple[str, Use]]) -> None:  # E7 E48
    told = [
        f"{file}:{use.line} uses {use.name}: {FORBIDDEN.get(use.name) or 'ask the port'}"
        for file, use in found
        if (file, use.name) not in ALLOWED
    ]
    assert told == []


def test_every_exception_is_still_needed(found: list[tuple[str, Use]]) -> None:
    assert set(ALLOWED) - {(file, use.name) for file, use in found} == set()
    assert all(ALLOWED.values())
    for front in FREE:
        assert (SOURCE / front).exists(), f"{front} is gone: take it off the list"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import time\nnow = time.time()", "time.time"),
        ("import time as t\nt.sleep(1)", "time.sleep"),
        ("import time\nread = time.monotonic", "time.monotonic"),
        ("from time import monotonic", "time.monotonic"),
        ("from datetime import datetime, UTC\ndatetime.now(UTC)", "datetime.datetime.now"),
        ("import datetime as dt\ndt.datetime.utcnow()", "datetime.datetime.utcnow"),
        ("from datetime import date\ndate.today()", "datetime.date.today"),
        ("import random\nrandom.random()", "random.random"),
        ("from random import Random\nRandom()", "random.Random"),
        ("import secrets\nsecrets.token_hex()", "secrets.token_hex"),
        ("import uuid\nuuid.uuid4()", "uuid.uuid4"),
        ("def f():\n    import uuid_utils\n    return uuid_utils.uuid7()", "uuid_utils.uuid7"),
        ("import os\nos.urandom(3)", "os.urandom"),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(1)", "asyncio.sleep"),
        ("import asyncio\nasync def f(n):\n    await asyncio.sleep(n)", "asyncio.sleep"),
        ("from asyncio import sleep\nasync def f():\n    await sleep(0.1)", "asyncio.sleep"),
        ("import threading\nthreading.Thread(target=print).start()", "threading.Thread"),
        ("import threading\nthreading.Timer(1, print)", "threading.Timer"),
        ("import threading\nthreading.Semaphore(0)", "threading.Semaphore"),
        ("from queue import SimpleQueue\nSimpleQueue().get()", "queue.SimpleQueue"),
        ("from concurrent.futures import ThreadPoolExecutor", "concurrent.futures.ThreadPoolExecutor"),
        ("import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor(2)", "concurrent.futures.ThreadPoolExecutor"),
        ("import asyncio\nasyncio.get_running_loop().call_later(1, print)", "call_later"),
        ("def f(loop):\n    loop.call_at(1, print)", "call_at"),
    ],
)  # fmt: skip
def test_a_planted_use_is_found(code: str, name: str) -> None:
    assert name in {use.name for use in uses(ast.parse(dedent(code)))}


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)",
        "async def f(clock):\n    await clock.sleep(1)\n    return clock.now(), clock.monotonic()",
        "from datetime import datetime, timedelta\ndatetime(2026, 1, 1) + timedelta(1)",
        "from concurrent.futures import Executor",
        "from uuid import UUID\nUUID('0190a0b0-1111-7abc-8def-0123456789ab')",
        "def f(time):\n    return time.time()",
        "import os\nos.getpid()",
        "def f(random):\n    return random.random()",
    ],
)
def test_what_is_allowed_is_not_found(code: str) -> None:
    assert list(uses(ast.parse(code))) == []

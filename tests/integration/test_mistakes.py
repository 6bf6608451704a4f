"""Mistakes that people make: each gets one sentence that says what is wrong and what to do.

To add one, add a row: to CALLS what Python code does wrong (it is given a `World`), to COMMANDS what is typed at a shell, to
SCRIPTS a program that has to run as a process of its own. The words are those that the sentence cannot do without. What a handler
may not do while a worker runs it belongs here, too.

Elsewhere: where a handler that raises says its file and line (test_tracebacks.py), other ways to have no main guard
(e2e/test_main_guard.py), other waits for jobs (test_waiting_handlers.py), other blocked loops (worker/test_watchdog.py).
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy

import holdfast
from holdfast import Handle, Holdfast, JobFailed, current_job, policies
from holdfast.cli import main
from holdfast.errors import HoldfastError
from holdfast.redaction import redact_text
from tests.apps import new_app, work

pytestmark = pytest.mark.anyio

#: The public names, for calls that a type checker would not let through.
hf: Any = holdfast
#: As many characters fit on a few lines of a terminal.
LONGEST = 400


@dataclass
class Card:
    number: str


@dataclass
class Iban:
    number: str


class Shop:
    """A class that tasks should not be in."""

    def pack(self, order: int) -> int:
        return order


class World:
    """An app with a task and a job of it, and a folder for whatever a mistake needs."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.empty = ""  #: an empty database on the same server
        self.app: Any = new_app(url)
        self.job: Handle[str]

        @self.app.task
        async def send(to: str, copies: int = 1) -> str:
            return to * copies

        self.send: Any = send

    def task(self, **options: Any) -> Any:
        """Declare one more task, with these options."""

        async def other() -> None: ...

        return self.app.task(**{"name": self.new_name(), **options})(other)

    def new_name(self) -> str:
        return f"task {len(self.app.tasks)}"

    async def run(self, handler: Callable[..., Any], *args: Any) -> None:
        """Run *handler* as a task; raise what its job failed of, in the words of the attempt."""
        handle = await self.app.task(handler, name=self.new_name()).enqueue(*args)
        await work(self.app)
        try:
            await handle.result()
        except JobFailed:
            failure = (await self.app.jobs.attempts(handle.id))[-1].failure
            assert failure is not None
            raise HoldfastError(f"{failure.code}: {failure.detail}") from None


def _unannotated(world: World, value: Any) -> Any:
    def keep(value): ...  # type: ignore[no-untyped-def]

    return world.app.task(keep, name=world.new_name()).enqueue(value)


def _returning(value: Any) -> Callable[[World], Any]:
    async def give():  # type: ignore[no-untyped-def]
        return value

    return lambda world: world.run(give)


def _pay(world: World) -> Any:
    async def pay(source: Card | Iban) -> None: ...

    return world.app.task(pay, name=world.new_name()).enqueue(Iban("DE1"))


def _in_a_process(world: World, function: Callable[..., Any], **options: Any) -> Any:
    return world.app.task(**{"name": "pack", "execute": "process", **options})(function)


def _closure(order: int = 1) -> Callable[[], int]:
    def pack() -> int:
        return order

    return pack


def _generator() -> Any:
    yield 1


async def _in_a_step(world: World) -> None:
    async def handler() -> None:
        job: Any = current_job()
        await job.step("mail", print("x"))

    await world.run(handler)


async def _outside_of_a_transaction(world: World) -> None:
    file = sqlite3.connect(world.folder / "jobs.db", isolation_level=None)
    file.execute("PRAGMA synchronous = FULL")
    with closing(file):
        await world.send.options(connection=file).enqueue("ann")


async def _on_another_file(world: World) -> None:
    with closing(sqlite3.connect(world.folder / "other.db")) as file:
        await world.send.options(connection=file).enqueue("ann")


async def _not_a_database(world: World) -> None:
    (world.folder / "text.db").write_text("no database " * 1000)
    async with Holdfast(f"sqlite:///{world.folder}/text.db"):
        pass


async def _reach(url: str) -> None:
    async with Holdfast(url):
        pass


def _engine(world: World) -> Any:
    return sqlalchemy.create_engine(world.url.replace("postgresql://", "postgresql+psycopg://"))


#: A mistake, how it is made, and words of the sentence. What it returns is awaited.
CALLS: dict[str, tuple[Callable[[World], Any], str]] = {
    # -- enqueue: the call
    "no argument": (lambda w: w.send.enqueue(), "send() needs the argument to; it takes: to, copies"),
    "too many arguments": (
        lambda w: w.send.enqueue("a", 1, 2),
        "takes 2 positional arguments but 3 were given",
    ),
    "an argument twice": (lambda w: w.send.enqueue("a", to="b"), "two values for the argument to"),
    "a wrong type": (lambda w: w.send.enqueue(5), "Expected `str`, got `int` - at `$.to`"),
    "an unknown argument": (
        lambda w: w.send.enqueue("a", subject="x"),
        "send() has no argument subject; its arguments are: to, copies",
    ),
    "a misspelled option": (
        lambda w: w.send.enqueue("a", dely="1m"),
        "did you mean delay? It is an option: send.options(delay=…)",
    ),
    "a misspelled argument": (lambda w: w.send.enqueue("a", copys=2), "did you mean copies?"),
    "an unknown option": (lambda w: w.send.options(dely="1m"), "no option dely; did you mean delay?"),
    "a job that is not asked for": (lambda w: w.send.enqueue("a", job=1), "no argument job"),
    "a function as argument": (
        lambda w: _unannotated(w, print),
        "it holds a builtin_function_or_method; use texts, numbers, lists and dicts",
    ),
    "a Decimal without annotation": (
        lambda w: _unannotated(w, Decimal("1.1")),
        "the argument value is a Decimal and would become a str; annotate the argument",
    ),
    "bytes without annotation": (
        lambda w: _unannotated(w, b"a"),
        "is a bytes and would become a str; annotate",
    ),
    "a set without annotation": (
        lambda w: _unannotated(w, {1}),
        "is a set and would become a list; annotate",
    ),
    "int keys without annotation": (
        lambda w: _unannotated(w, {1: 2}),
        "a key of the argument value is an int",
    ),
    "a datetime without annotation": (
        lambda w: _unannotated(w, datetime.now(UTC)),
        "is a datetime and would become a str; annotate",
    ),
    "a type that looks like another": (
        _pay,
        "the argument source is an Iban and would become a Card; annotate the argument",
    ),
    "not a number": (
        lambda w: _unannotated(w, float("nan")),
        "NaN or Infinity, which JSON does not have; use None",
    ),
    "a huge argument": (
        lambda w: w.send.enqueue("x" * 2_000_000),
        "store large data elsewhere and pass a reference",
    ),
    "Celery's delay": (lambda w: w.send.delay("a"), "use `await task.enqueue(…)` or `task.enqueue_sync(…)`"),
    "Celery's apply_async": (lambda w: w.send.apply_async(("a",)), "a task has no apply_async; use `await"),
    # -- enqueue: options
    "a naive time": (
        lambda w: w.send.options(run_at=datetime.now(UTC).replace(tzinfo=None)).enqueue("a"),
        "pass an aware datetime",
    ),
    "a time as text": (
        lambda w: w.send.options(run_at="9:00").enqueue("a"),
        "it is a datetime with a time zone",
    ),
    "a wrong duration": (
        lambda w: w.send.options(delay="soon").enqueue("a"),
        "delay: 'soon' is not a duration; write \"30s\"",
    ),
    "a negative duration": (
        lambda w: w.send.options(delay=-5).enqueue("a"),
        "delay: -5 is out of range; a duration is 0 to",
    ),
    "two starts": (
        lambda w: w.send.options(delay="1s", run_at=datetime.now(UTC)).enqueue("a"),
        "run_at and delay both set when it may start; drop one",
    ),
    "a wrong priority": (
        lambda w: w.send.options(priority="urgent").enqueue("a"),
        "one of high, normal, low",
    ),
    "tags as text": (
        lambda w: w.send.options(tags="vip").enqueue("a"),
        "it is a list of texts, e.g. tags=['vip']",
    ),
    "an id that is none": (lambda w: w.send.options(id="7").enqueue("a"), "it must be a UUID"),
    "an owner that is a number": (lambda w: w.send.options(owner=5).enqueue("a"), "owner is 5; it is a text"),
    "an empty dedupe key": (lambda w: w.send.options(dedupe_key="").enqueue("a"), "not an empty one"),
    "an empty queue": (
        lambda w: w.send.options(queue="").enqueue("a"),
        "queue is ''; it is a text of 1 to 500",
    ),
    "no attempts": (lambda w: w.send.options(max_attempts=0).enqueue("a"), "it is a whole number, 1 to 1000"),
    "many calls, one number": (lambda w: w.send.enqueue_many(5), "give it a list of calls of send()"),
    "many calls, one text": (lambda w: w.send.enqueue_many("ann"), "give it a list of calls of send()"),
    "many calls, one dict": (
        lambda w: w.send.enqueue_many({"to": "ann"}),
        "give it a list of calls of send()",
    ),
    "an id for many": (lambda w: w.send.options(id="x").enqueue_many(["a"]), "id= is for one job"),
    "anything as connection": (
        lambda w: w.send.options(connection=object()).enqueue("a"),
        "so pass a connection of",
    ),
    "an engine as connection": (
        lambda w: w.send.options(connection=_engine(w)).enqueue("a"),
        "sqlalchemy's Engine, which has no transaction of its own; pass the connection of `with engine.begin()",
    ),
    "an engine for plain code": (
        lambda w: w.send.options(connection=_engine(w)).enqueue_sync("a"),
        "pass the connection of `with engine.begin()",
    ),
    "an engine to publish on": (
        lambda w: w.app.outbox.publish("news", {}, connection=_engine(w)),
        "pass the connection of `with engine.begin()",
    ),
    # -- declaring
    "a misspelled task option": (lambda w: w.task(retires=3), "no task option retires; did you mean retry?"),
    "an unknown task option": (lambda w: w.task(zzz=3), "no task option zzz; there are: name, queue, retry,"),
    "a wrong timeout": (lambda w: w.task(timeout="soon"), "timeout: 'soon' is not a duration; write"),
    "a timeout of nothing": (lambda w: w.task(timeout=0), "write a longer time, or None for none"),
    "a wrong executor": (
        lambda w: w.task(execute="threads"),
        "it is one of async, thread, process, external",
    ),
    "a thread for async": (
        lambda w: w.task(execute="thread"),
        "leave out execute=, or write it as a plain def",
    ),
    "retries as text": (
        lambda w: w.task(retry="3"),
        "or write a Retry(…), or how many attempts there are in all",
    ),
    "limits as number": (lambda w: w.task(limits=5), "it is a Limits(concurrency=…, rate=…)"),
    "a topic without outside": (lambda w: w.task(topic="news"), 'declare it with execute="external"'),
    "a name twice": (lambda w: w.app.task(name="send")(_returning), "give this one another name="),
    "no function": (lambda w: w.app.task(5), "write @app.task above one"),
    "a name instead of a function": (
        lambda w: w.app.task("send"),
        "with options by keyword: @app.task(name=…)",
    ),
    "a class": (lambda w: w.app.task(World), "World is a class; a task is a function, so write one"),
    "a generator": (
        lambda w: w.app.task(_generator),
        "_generator yields; a task returns its result, e.g. as a list",
    ),
    "a function written in C": (lambda w: w.app.task(name="x")(min), "wrap it in a function of your own"),
    "a method": (
        lambda w: w.app.task(Shop.pack),
        "Shop.pack is a method, and a worker has no object to call it on; a task is a function: write it at the top of the",
    ),
    "a method in a process": (
        lambda w: _in_a_process(w, Shop.pack),
        "Shop.pack is a method, and a worker has no object to call it on; a task is a function: write it at the top of the",
    ),
    "a method of an object in a process": (
        lambda w: _in_a_process(w, Shop().pack),
        "it must be a function at the top of a module; move it there, or run it with execute='thread'",
    ),
    "a closure in a process": (
        lambda w: _in_a_process(w, _closure()),
        "it must be a function at the top of a module; move it there, or run it with execute='thread'",
    ),
    "a local function with a timeout": (
        lambda w: _in_a_process(w, _closure(), execute=None, timeout="1m"),
        "runs in a process, as a plain def with a timeout does, so it must be a function at the top of a module; move it",
    ),
    "a lambda in a process": (
        lambda w: _in_a_process(w, lambda order: order),
        "it must be a function at the top of a module; move it there, or run it with execute='thread'",
    ),
    "a schedule below its task": (
        lambda w: w.app.task(w.app.schedule(hf.Every("1h"))(_closure())),
        "pack is not a task of this app; put @app.schedule above @app.task",
    ),
    "no retries at all": (lambda w: hf.Retry(0), "it counts all attempts, so 1 (no retry) to 1000"),
    "a wrong jitter": (
        lambda w: hf.Retry(3, jitter="lots"),
        'jitter is \'lots\'; write "20%", "5s" or one of',
    ),
    "a wrong base": (lambda w: hf.Retry(3, base="abc"), "base: 'abc' is not a duration; write"),
    "a curve by name": (
        lambda w: hf.Retry(3, backoff="exponential"),
        "it is a curve, e.g. table([…]) or fixed(…)",
    ),
    "an empty table": (lambda w: policies.table([]), "a table is a list of at least one delay"),
    "exceptions by name": (lambda w: hf.Retry(3, never=["x"]), "it is a list of exception types"),
    "a rate without time": (lambda w: hf.Limits(rate="100"), 'write a count and a time, e.g. "100/min"'),
    "a breaker that is none": (lambda w: w.app.dependency("bank", breaker="yes"), "it is a BreakerPolicy(…)"),
    "a share as percent": (lambda w: policies.BreakerPolicy(threshold=50), "threshold is 50; it is"),
    "a wrong day": (lambda w: policies.Window(days="mo-fr", start="08:00", end="18:00"), 'e.g. "mon-fri"'),
    "a wrong time of day": (
        lambda w: policies.Window(start="8", end="18:00"),
        'it is a time of day, "00:00" to "24:00"',
    ),
    "a wrong zone": (
        lambda w: policies.Window(start="08:00", end="18:00", zone="Europe/Berlim"),
        "did you mean Europe/Berlin?",
    ),
    "a wrong cron": (
        lambda w: w.app.schedule(w.task(), hf.Cron("61 * * * *")),
        "bad minute; write minute hour day month",
    ),
    "a short cron": (
        lambda w: w.app.schedule(w.task(), hf.Cron("* * *")),
        "it does not have five fields; write minute hour",
    ),
    "a cron as text": (lambda w: w.app.schedule(w.task(), "0 3 * * *"), "write Cron(…) or Every(…)"),
    "a wrong interval": (lambda w: w.app.schedule(w.task(), hf.Every("soon")), "is not a duration; write"),
    "a misspelled schedule option": (
        lambda w: w.app.schedule(w.task(), hf.Every("1h"), mised="all"),
        "did you mean missed?",
    ),
    "a hook for nothing": (lambda w: w.app.on("done"), "no event done; there are: queued"),
    # -- the app
    "an empty URL": (lambda w: hf.Holdfast(""), "url is empty; name a store (sqlite:///file.db"),
    "another database": (
        lambda w: hf.Holdfast("mysql://db"),
        "'mysql' is not a store; use sqlite:///file.db",
    ),
    "a file without scheme": (
        lambda w: hf.Holdfast("jobs.db"),
        "'jobs.db' is not a store; use sqlite:///file.db",
    ),
    "a URL that is none": (lambda w: hf.Holdfast(5), "url is 5; it is a text"),
    "a misspelled setting": (
        lambda w: hf.Holdfast("memory://", pol="1s"),
        "no setting pol; did you mean poll?",
    ),
    "a late heartbeat": (
        lambda w: hf.Holdfast("memory://", lease="9s", heartbeat="8s"),
        "shorten it, or leave it out",
    ),
    "a retention as text": (lambda w: hf.Holdfast("memory://", retention="7d"), "it is a Retention("),
    "no room": (lambda w: hf.Holdfast("memory://", concurrency=0), "concurrency is 0; it must be at least 1"),
    "a server that is away": (lambda w: _reach("postgresql://u:hunter2@127.0.0.1:1/db"), "is it running?"),
    "a port that is none": (
        lambda w: _reach("postgresql://u:hunter2@host:x/db"),
        "write postgresql://user:password@host:5432",
    ),
    "a folder that is missing": (
        lambda w: _reach(f"sqlite:///{w.folder}/no/jobs.db"),
        "its folder must exist and be writable",
    ),
    "a file that is no database": (_not_a_database, "restore it or choose another file"),
    # -- verbs
    "an unknown job": (
        lambda w: w.app.jobs.get("nope"),
        "no job has the id nope; `holdfast jobs list` shows",
    ),
    "a misspelled filter": (lambda w: w.app.jobs.list(stat="queued"), "no filter stat; did you mean state?"),
    "an unknown state": (
        lambda w: w.app.jobs.list(state="done"),
        "a state is one of queued, processing, complete",
    ),
    "a page of nothing": (lambda w: w.app.jobs.list(limit=0), "limit is 0; it is a whole number, 1 to 10000"),
    "other arguments for a retry": (
        lambda w: w.app.jobs.retry(w.job.id, args={"x": 1}),
        "no argument x; it takes: to, copies",
    ),
    "a retry of what waits": (
        lambda w: w.app.dead_letters.redrive(rate=0),
        "rate is 0; it is a number, 0.001 to",
    ),
    "a discard without reason": (
        lambda w: w.app.dead_letters.discard(reason=""),
        "say why these dead letters are discarded",
    ),
    "a pause of a wrong length": (
        lambda w: w.app.queues.pause("default", duration="x"),
        "duration: 'x' is not a duration; write",
    ),
    "queues as text": (lambda w: w.app.run_worker(queues="mail"), 'it is a list of names, e.g. ["default"]'),
    "no queues": (lambda w: w.app.run_worker(queues=[]), "name those to serve, or leave it out"),
    "no slots": (lambda w: w.app.run_worker(concurrency=0), "concurrency is 0; it is a whole number, 1 to"),
    "a result without a worker": (
        lambda w: w.job.result(timeout="1ms"),
        "is still queued after 1ms. No live worker serves queue 'default'; start `holdfast worker`",
    ),
    "a timeout that is none": (lambda w: w.job.result(timeout="x"), "timeout: 'x' is not a duration; write"),
    "no job here": (lambda w: current_job(), "call it in a task that a worker runs"),
    "a webhook to a private address": (
        lambda w: w.app.webhooks.create("http://10.0.0.1/hook"),
        "not a public one; HOLDFAST_OUTBOUND_ALLOW opens networks of your own",
    ),
    "a webhook that is no URL": (
        lambda w: w.app.webhooks.create("ftp://x/"),
        "it must begin with https:// or http://",
    ),
    "a webhook for an unknown event": (
        lambda w: w.app.webhooks.create("https://1.1.1.1/", events=["completed"]),
        "no event 'completed'; did you mean complete?",
    ),
    # -- inside a handler
    "a result that changes": (
        _returning({1, 2}),
        "RESULT_INVALID: the result is a set and would become a list; annotate the return type",
    ),
    "a result that is no data": (
        _returning(print),
        "RESULT_INVALID: the result cannot be stored as JSON: it holds a builtin_function_or_method; use texts",
    ),
    "a step that was called": (_in_a_step, "it is a function and its arguments: job.step(name, function, …)"),
}
#: Mistakes about files that only SQLite has.
SQLITE_CALLS: dict[str, tuple[Callable[[World], Any], str]] = {
    "no transaction": (
        _outside_of_a_transaction,
        "no transaction is open on this connection; BEGIN one first",
    ),
    "another file": (_on_another_file, "the jobs are in jobs.db; pass one to that file"),
}


#: Mistakes about servers that only PostgreSQL has.
POSTGRES_CALLS: dict[str, tuple[Callable[[World], Any], str]] = {
    "a database without tables": (
        lambda w: _reach(w.empty),
        "has no Holdfast schema; run `holdfast migrate`",
    ),
    "a wrong password": (
        lambda w: _reach(f"postgresql://holdfast:hunter2@{w.url.rpartition('@')[2]}"),
        "PostgreSQL refused the user or password",
    ),
    "a database that is not there": (
        lambda w: _reach(f"{w.url.rpartition('/')[0]}/no_such_database"),
        "create it, then run `holdfast migrate`",
    ),
    "a reason that PostgreSQL cannot store": (
        lambda w: w.app.queues.pause("default", reason="de\x00ploy"),
        "a text contains a NUL character, which PostgreSQL cannot store; remove it",
    ),
    "a webhook without a key": (
        lambda w: w.app.webhooks.create("https://1.1.1.1/"),
        "need a key on PostgreSQL; set HOLDFAST_SECRET, the same in every process of this app; make one with python -c",
    ),
}


def _sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    # At a shell no word of it is hidden, but for the password of an example.
    assert redact_text(text) == text.replace("//user:password@", "//user:***@")
    assert len(text) <= LONGEST, text
    assert "hunter2" not in text
    return text


async def _made(world: World, mistake: Callable[[World], Any]) -> BaseException | None:
    try:
        made = mistake(world)
        if isinstance(made, Awaitable):
            await made
    except (HoldfastError, TimeoutError, AttributeError) as error:
        return error
    return None


async def _missed(world: World, calls: dict[str, tuple[Callable[[World], Any], str]]) -> dict[str, str]:
    """Make each mistake; return those whose sentence is missing or another one."""
    missed: dict[str, str] = {}
    async with world.app:
        world.job = await world.send.enqueue("ann")
        for name, (mistake, words) in calls.items():
            error = await _made(world, mistake)
            if error is None:
                missed[name] = "nothing was said"
            elif words not in _sentence(error):
                missed[name] = f"{type(error).__name__}: {error}"
    if world.app.runtime._portal is not None:
        world.app.sync.close()
    return missed


async def test_a_mistake_in_python_gets_a_sentence(database_url: str, tmp_path: Path) -> None:  # E53
    assert await _missed(World(database_url, tmp_path), CALLS) == {}


async def test_a_mistake_with_a_file_gets_a_sentence(sqlite_url: str, tmp_path: Path) -> None:  # E53
    assert await _missed(World(sqlite_url, tmp_path), SQLITE_CALLS) == {}


async def test_a_mistake_with_a_server_gets_a_sentence(
    postgres_url: str, empty_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E53
    monkeypatch.delenv("HOLDFAST_SECRET")
    world = World(postgres_url, tmp_path)
    world.empty = empty_postgres
    assert await _missed(world, POSTGRES_CALLS) == {}


SHOP = """
from holdfast import Holdfast
app = Holdfast()
@app.task
async def convert(pdf: str, pages: int = 1) -> str:
    return pdf
"""
MODULES = {
    "shop_app": SHOP,
    "shop_broken": "def f(\n",
    "shop_raises": "import no_such_module_anywhere\n",
    "shop_bare": "x = 5\n",
    "shop_misspelled": SHOP.replace("@app.task", "@app.task(retires=3)"),
    "shop_empty": "from holdfast import Holdfast\napp = Holdfast()\n",
}
#: What is typed, the exit code, and words of the line on stderr.
COMMANDS: dict[str, tuple[int, str]] = {
    "jbs": (2, "no command 'jbs'; did you mean 'jobs'?"),
    "jobs lst": (2, "No such command 'lst'. Did you mean 'list'?"),
    "jobs list --stat queued": (2, "No such option: --stat (Possible options: --state"),
    "jobs list --state done": (2, "a state is one of queued, processing"),
    "jobs list --url sqlite:///none.db": (5, "there is no database none.db; name another with --url"),
    "jobs list --url postgresql://u:hunter2@127.0.0.1:1/x": (5, "cannot be reached; is it running?"),
    "jobs show": (2, "Missing argument 'ID'"),
    "jobs show nope": (4, "no job has the id nope; `holdfast jobs list` shows"),
    "jobs retry 01a1eed2-51ea-76a7-b748-862d49fa7694": (4, "`holdfast jobs list` shows the existing ones"),
    "jobs reclaim": (2, "name the app with --app pkg.module:name"),
    "worker": (2, "Missing argument 'APP'"),
    "worker shop_app": (2, "does not name an app; say pkg.module:name"),
    "worker shop_ap:app": (2, "no module 'shop_ap' (tried to import shop_ap); did you mean shop_app"),
    "worker shop_app:ap": (2, "shop_app has no 'ap'; did you mean shop_app:app?"),
    "worker shop_app:convert": (2, "is a Task, not a Holdfast app; did you mean shop_app:app?"),
    "worker shop_bare:app": (2, "shop_bare has no 'app'; write app = Holdfast(…) there"),
    "worker shop_bare:x": (2, "shop_bare:x is a int, not a Holdfast app; name one: app = Holdfast(…)"),
    "worker shop_broken:app": (2, "SyntaxError: '(' was never closed (shop_broken.py line 1)"),
    "worker shop_raises:app": (2, "No module named 'no_such_module_anywhere' (shop_raises.py line 1)"),
    "worker shop_misspelled:app": (
        2,
        "no task option retires; did you mean retry? (shop_misspelled.py line 4)",
    ),
    "worker shop_empty:app": (2, "this app has no tasks, so there is nothing to run; import the modules"),
    "worker shop_app:app --queues=": (2, "--queues names no queue; leave it out to serve all"),
    "worker shop_app:app --concurrency 0": (2, "0 is not in the range x>=1"),
    "serve shop_app:app --host 0.0.0.0 --no-auth": (
        2,
        "leave it out and create a key: `holdfast keys create`",
    ),
    "serve shop_app:app --rate fast": (2, 'write a count and a time, e.g. "100/min"'),
    "explain nope": (4, "`holdfast jobs list` shows the existing ones"),
    "dead show nope": (4, "`holdfast dead list` shows the existing ones"),
    "dead discard": (2, "Missing option '--reason'"),
    "queues pause default --for soon": (2, 'is not a duration; write "30s"'),
    "keys create --role boss": (2, "it is one of viewer, owner, operator, admin"),
    "keys revoke nope": (4, "`holdfast keys list` shows the existing ones"),
    "webhooks create ftp://x": (2, "it must begin with https:// or http://"),
    "webhooks create http://10.0.0.1/": (2, "HOLDFAST_OUTBOUND_ALLOW opens networks of your own"),
    "webhooks test nope": (4, "`holdfast webhooks list` shows the existing ones"),
    "webhooks test {webhook}": (1, "so nothing was sent; start one: holdfast worker MODULE:APP"),
    "operations show nope": (4, "`holdfast operations list` shows the existing ones"),
    "outbox show nope": (4, "`holdfast outbox list` shows the existing ones"),
    "doctor --url mysql://db": (2, "'mysql' is not a store; use sqlite:///file.db"),
    "simulate --scenario nope": (2, "no scenario 'nope'; there are: bad-worker"),
    "simulate --task x": (2, "name it by --file"),
    "simulate --file bad.toml": (
        2,
        "bad.toml:2: tasks.convert.max_atempts: there is no such key here; did you mean max_attempts?",
    ),
}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with some modules and a database."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "bad.toml").write_text("[tasks.convert]\nmax_atempts = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"sqlite:///{tmp_path}/jobs.db")
    assert main(["migrate"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("typed", COMMANDS)
@pytest.mark.usefixtures("shell")
def test_a_mistake_at_a_shell_gets_a_line(typed: str, capsys: pytest.CaptureFixture[str]) -> None:  # E53
    code, words = COMMANDS[typed]
    if "{webhook}" in typed:
        assert main(["webhooks", "create", "https://1.1.1.1/", "--json"]) == 0
        typed = typed.format(webhook=json.loads(capsys.readouterr().out)["id"])
    assert main(typed.split(" ")) == code
    said = capsys.readouterr().err
    assert words in said
    assert "hunter2" not in said
    assert "***" not in said
    if "Traceback" in said:  # of the user's own module
        assert said.startswith("holdfast: importing shop_")


class Script(NamedTuple):
    program: str
    words: list[str]  #: each of a line of its own
    command: str = "program.py"


#: What the programs begin with.
BEGIN = """
import asyncio, subprocess, sys, time
from holdfast import Holdfast
app = Holdfast("sqlite:///jobs.db", poll="50ms", grace="0s")
"""
ADD = """
@app.task(execute="process", retry=1)
def add(a: int, b: int) -> int:
    return a + b
async def main():
    async with app:
        await add.enqueue(1, 2)
        await app.run_worker(until_idle=True)
"""
RENDER = """
@app.task
async def render() -> int:
    return 1
@app.task
async def invoice() -> int:
    return await (await render.enqueue()).result()
async def main():
    async with app:
        await invoice.enqueue()
        worker = asyncio.create_task(app.run_worker(concurrency=1))
        while not any(one.waiting for one in await app.queues.workers()):
            await asyncio.sleep(0.05)
        [waiting] = (await app.jobs.list(task="render")).rows
        for words in (["doctor"], ["explain", waiting.id]):
            command = [sys.executable, "-m", "holdfast", *words, "--url", "sqlite:///jobs.db"]
            print((await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)).stdout, file=sys.stderr)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
"""
BLOCK = """
@app.task
async def block() -> None:
    time.sleep(3)
async def main():
    async with app:
        await block.enqueue()
        await app.run_worker(until_idle=True)
"""
GO = "asyncio.run(main())\n"
GUARD = 'if __name__ == "__main__":\n'
SCRIPTS = {
    "no main guard": Script(
        BEGIN + ADD + GO,
        [
            "program.py has tasks that run in child processes, and each child imports it again; put what it does under `if __na"
        ],
    ),
    "no main guard, by name": Script(
        BEGIN + ADD + GO,
        [
            'starts a worker while it is imported; put that under `if __name__ == "__main__":` (program.py line '
        ],
        "-m holdfast worker program:app",
    ),
    "a task under the main guard": Script(
        BEGIN + GUARD + ADD.replace("\n", "\n    ") + GO,
        ['a child process does not find add; define it outside of `if __name__ == "__main__":`'],
    ),
    "handlers that wait for jobs in every slot": Script(
        BEGIN + RENDER + GUARD + "    " + GO,
        [
            "hint=raise the concurrency, give the jobs that are waited for a queue and a worker of their own, or raise Snooze",
            "are held by handlers that wait for queued jobs: raise --concurrency, give the jobs that are waited for a queue and",
            "Every slot of its workers (1) is held by a handler that waits for a queued job; raise the concurrency, or give",
        ],
    ),
    "a handler that blocks the loop": Script(
        BEGIN + BLOCK + GUARD + "    " + GO,
        [
            "program.py:8 in block hint=it runs nothing else meanwhile; await what blocks, or write the task as a plain def"
        ],
    ),
    "a missing driver": Script(
        f"import sys\nsys.modules['asyncpg'] = None\n{BEGIN}".replace(
            "sqlite:///jobs.db", "postgresql://u:hunter2@db/x"
        )
        + ADD
        + GUARD
        + "    "
        + GO,
        ["PostgreSQL needs the driver asyncpg; pip install 'holdfast[postgres]'"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_mistake_in_a_program_gets_a_line(name: str, tmp_path: Path) -> None:  # E53
    """At most one traceback: Python's own, of what a call raised, which ends with the sentence."""
    script = SCRIPTS[name]
    (tmp_path / "program.py").write_text(script.program)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, *script.command.split()]
    done = subprocess.run(
        command, cwd=tmp_path, env=ours | {"COLUMNS": "400"}, capture_output=True, text=True, timeout=60
    )
    lines = done.stderr.strip().splitlines()
    for words in script.words:
        assert sum(words in line for line in lines) == 1, done.stderr
    assert "hunter2" not in done.stderr
    if "Traceback" in done.stderr:
        assert done.stderr.count("Traceback (most recent call last)") == 1, done.stderr
        assert script.words[0] in lines[-1]


def test_there_are_at_least_sixty() -> None:
    assert len(CALLS) + len(SQLITE_CALLS) + len(COMMANDS) >= 60

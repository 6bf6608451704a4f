"""Load the app that a command names, and open its database."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import os
import pkgutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from holdfast.cli.exit_codes import OK, ImportFailed
from holdfast.errors import StoreUnavailable, UsageError
from holdfast.values.duration import format_duration

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast

T = TypeVar("T")

#: Seconds between two attempts to reach the database; doubled after each.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0


def load_app(name: str) -> Holdfast:
    """Return the app named *name* (`pkg.module:attribute`). Modules in the working directory can be imported."""
    from holdfast.app import Holdfast

    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError(f"{name!r} does not name an app; say pkg.module:name, e.g. examples.hello:app")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    found: Any = _import(module_name)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(_no_attribute(module_name, attribute, found, part)) from None
    if not isinstance(found, Holdfast):
        raise UsageError(_no_app(module_name, name, found))
    return found


def _import(name: str) -> Any:
    from holdfast.tasks.main_guard import importing

    try:
        with importing(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise _import_failed(name, error) from error
        raise UsageError(_no_module(name, error.name)) from None
    except Exception as error:
        raise _import_failed(name, error) from error


def _import_failed(name: str, error: Exception) -> ImportFailed:
    from holdfast.engine.tracebacks import file_name, raised_of
    from holdfast.jobs.tracebacks import Traceback

    raised, what = raised_of(error), str(error) or type(error).__name__
    theirs = [frame for frame in raised.frames if not frame.file.startswith(("holdfast/", "<"))]
    places = [f"{frame.file} line {frame.line}" for frame in (theirs or raised.frames)[-1:]]
    if isinstance(error, SyntaxError) and error.filename:
        what, places = error.msg, [f"{file_name(error.filename)} line {error.lineno}"]
    where = f" ({places[0]})" if places else ""
    if isinstance(error, UsageError):  # its message says enough
        return ImportFailed(f"importing {name} failed: {what}{where}", "")
    message = f"importing {name} failed: {type(error).__name__}: {what}{where}"
    return ImportFailed(message, Traceback.of(raised).text if raised.frames else "")


def _no_module(name: str, missing: str) -> str:
    parent = missing.rpartition(".")[0]
    places = list(getattr(sys.modules.get(parent), "__path__", [])) if parent else [os.getcwd()]
    there = [f"{parent}.{m.name}" if parent else m.name for m in pkgutil.iter_modules(places)]
    near = difflib.get_close_matches(missing, there, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"looked in {places[0] if places else parent}"
    return f"no module {missing!r} (tried to import {name}); {hint}"


def _no_app(module: str, name: str, found: object) -> str:
    apps = _apps(sys.modules[module])
    hint = (
        f"did you mean {' or '.join(f'{module}:{key}' for key in apps)}?"
        if apps
        else "name one: app = Holdfast(…)"
    )
    return f"{name} is a {type(found).__name__}, not a Holdfast app; {hint}"


def _apps(holder: object) -> list[str]:
    from holdfast.app import Holdfast

    return [key for key, value in vars(holder).items() if isinstance(value, Holdfast)]


def _no_attribute(module: str, attribute: str, holder: object, part: str) -> str:
    apps = _apps(holder)
    near = difflib.get_close_matches(part, [key for key in vars(holder) if not key.startswith("_")], 3, 0.5)
    names = apps or near
    hint = (
        f"did you mean {' or '.join(f'{module}:{key}' for key in names)}?"
        if names
        else "write app = Holdfast(…) there"
    )
    return f"{module} has no {attribute!r}; {hint}"


def chosen_app(app: str | None, url: str | None) -> Holdfast:
    """Return the app of that name, or one without tasks that only knows the database."""
    from holdfast.app import Holdfast

    if app is None:
        return Holdfast(url)
    found = load_app(app)
    if url is not None:
        found.runtime.url = url
    return found


@asynccontextmanager
async def retry_until_available(app: Holdfast) -> AsyncIterator[None]:
    """Open *app* as soon as its database can be reached, for processes that run for long."""
    await wait_out(app, app.__aenter__)
    try:
        yield
    finally:
        await app.close()


def run_until_stopped(name: str, work: Callable[[Holdfast], Awaitable[object]]) -> int:
    """Call *work* with the app named *name*, which a signal ends, and return the exit code. A second signal stops at once."""
    from holdfast import logging as logs
    from holdfast.cli.supervisor import die_with_parent
    from holdfast.signals import with_deadline

    die_with_parent()
    app = load_app(name)
    logs.configure(keep=True)

    async def run() -> None:
        async with retry_until_available(app):
            await work(app)

    with with_deadline():
        asyncio.run(run())
    return OK


async def wait_out(app: Holdfast, verb: Callable[[], Awaitable[T]]) -> T:
    """Call *verb* as soon as the database can be reached, and return its answer.

    The database may have been started at the same time, and be slower. Waiting is logged when it begins and when it ends.
    Raises `StoreUnavailable` after `wait_for_store`.
    """
    from holdfast.logging import Log

    log, patience = Log("holdfast.cli"), app.runtime.settings.wait_for_store.total_seconds()
    until, pause, waited = time.monotonic() + patience, FIRST_PAUSE, False
    while True:
        try:
            answer = await verb()
        except StoreUnavailable as error:
            if time.monotonic() + pause > until:
                raise
            if not waited:
                log.warning(
                    "store.unavailable",
                    reason=str(error),
                    hint=f"waits for {format_duration(app.runtime.settings.wait_for_store)}",
                )
            waited = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            continue
        if waited:
            log.info("store.recovered")
        return answer


def ask(app: str | None, url: str | None, verb: Callable[[Holdfast], Awaitable[T]]) -> T:
    """Open the database, which must exist already, call *verb* with the app, and close it. Return what *verb* returns."""
    from holdfast import logging as logs

    chosen = chosen_app(app, url)
    logs.configure(quiet=True)  # to stderr, so that stdout holds only the output
    _must_exist(chosen.runtime.url)

    async def opened() -> T:
        async with chosen:
            return await verb(chosen)

    return asyncio.run(opened())


def _must_exist(url: str) -> None:
    """Raise `StoreUnavailable` if a SQLite file does not exist. Opening would create it, and a mistyped name would show "no jobs"."""
    path = unquote(url.removeprefix("sqlite:///").partition("?")[0])
    if url.startswith("sqlite:///") and path and not Path(path).exists():
        raise StoreUnavailable(
            f"there is no database {path}; name another with --url, --app or HOLDFAST_DATABASE_URL,"
            " or make it with `holdfast migrate`"
        )

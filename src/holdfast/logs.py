"""Logs of a Holdfast process: structured, on stderr, without secrets.

`HOLDFAST_LOG` is `console` (for people, the default) or `json` (one object a line); `HOLDFAST_LOG_LEVEL` is a level,
`info` if not given. The front doors call `configure()`; the library itself never does, so an application that uses
Holdfast keeps its own set-up.

Everything takes the road of the standard library, which costs a process nothing to start. structlog is set up the same way
if the application has imported it: importing it for nobody would take a third of a worker's start.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import StoreError, UsageError
from holdfast.printable import printable, printable_lines
from holdfast.redaction import redacted

__all__ = ["Log", "configure"]

STYLES = ("console", "json")
LEVELS = ("debug", "info", "warning", "error", "critical")

#: What became of the job, where the event's name says it (E63 `status`).
_STATUS = {
    "job.retry_scheduled": "queued",
    "job.released": "queued",
    "job.failed": "failed",
    "job.completed": "complete",
    "job.lease_lost": "lost",
}

#: Libraries that tell of every call at the level "info", with addresses that nobody has checked for secrets.
CHATTY = ("httpx", "httpx2")

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}

Facts = MutableMapping[str, Any]


class LogMessage:
    """An event and its facts, as the message of a record: a set-up of somebody else's makes a readable line of it."""

    __slots__ = ("event", "facts")

    def __init__(self, event: str, facts: dict[str, Any]) -> None:
        self.event, self.facts = event, facts

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={value}" for name, value in self.facts.items())])


class Log:
    """A voice: an event and its facts, said once, wherever the application wants to hear it.

    Where structlog is configured lines go there, otherwise to the standard library's logging. How much is said is the level
    of the standard logger of this name either way: of our own (`holdfast`) warnings and worse, unless told otherwise, so that
    a program which merely uses Holdfast is not talked into its output. Secrets are hidden here already: how the application
    writes its lines is its own matter.
    """

    __slots__ = ("_name", "_std")

    def __init__(self, name: str) -> None:
        self._name, self._std = name, logging.getLogger(name)

    def debug(self, event: str, **facts: Any) -> None:
        self._say(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: Any) -> None:
        self._say(logging.INFO, event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        self._say(logging.WARNING, event, facts)

    def error(self, event: str, **facts: Any) -> None:
        self._say(logging.ERROR, event, facts)

    def exception(self, event: str, **facts: Any) -> None:
        """For bugs of ours only: with the stack."""
        self._say(logging.ERROR, event, facts, stack=True)

    def hears(self, level: int) -> bool:
        """Whether a line of this level would be said at all: for lines whose facts are dear to gather."""
        return self._std.isEnabledFor(level)

    def _say(self, level: int, event: str, facts: dict[str, Any], *, stack: bool = False) -> None:
        if not self._std.isEnabledFor(level):
            return
        facts = {name: redacted(name, value) for name, value in facts.items()}
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            more = {"exc_info": True} if stack else {}
            structlog.get_logger(self._name).log(level, event, **facts, **more)
        else:
            self._std.log(level, LogMessage(event, facts), exc_info=stack)


def configure(*, keep: bool = False, quiet: bool = False) -> None:
    """Set up the logs of this process.

    *keep* what an app has set up itself; *quiet* says only errors, unless the environment asks for more.
    """
    style = _one_of("HOLDFAST_LOG", "console", STYLES)
    level = _one_of("HOLDFAST_LOG_LEVEL", "error" if quiet else "info", LEVELS)
    render = as_json if style == "json" else as_text
    _configure_structlog(render, level, keep)
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    ours.setLevel(level.upper())
    if not root.handlers:
        root.addHandler(_ToStderr(render))
        root.setLevel(level.upper())
        for name in CHATTY:
            logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    elif not keep:
        ours.handlers[:] = [_ToStderr(render)]
        ours.propagate = False


def _configure_structlog(render: Callable[[Facts], str], level: str, keep: bool) -> None:
    structlog = sys.modules.get("structlog")
    if structlog is None or (keep and structlog.is_configured()):
        return
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            lambda _logger, _method, facts: _spare_traceback(facts),
            structlog.processors.format_exc_info,
            lambda _logger, _method, facts: _dressed(facts),
            lambda _logger, _method, facts: _keep_with_attempt(facts),
            lambda _logger, _method, facts: render(facts),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # The stream of the moment, not of the set-up: a program that swaps stderr gets the lines.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )


class _ToStderr(logging.Handler):
    def __init__(self, render: Callable[[Facts], str]) -> None:
        super().__init__()
        self._render = render

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self._render(_facts(record)) + "\n")
        except Exception:
            self.handleError(record)


def _facts(record: logging.LogRecord) -> Facts:
    facts: Facts = {}
    if isinstance(record.msg, LogMessage):
        facts.update(record.msg.facts)
        event = record.msg.event
    else:
        facts["logger"] = record.name
        event = record.getMessage()
    facts["level"] = record.levelname.lower()
    facts["timestamp"] = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
    facts["event"] = event
    if record.exc_info:
        facts["exc_info"] = record.exc_info
        _spare_traceback(facts)
        if facts.pop("exc_info", None):
            facts["exception"] = _PLAINLY.formatException(record.exc_info)
    return _dressed(facts)


_PLAINLY = logging.Formatter()


def _one_of(name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = os.environ.get(name) or default
    if value.lower() not in allowed:
        raise UsageError(f"{name} is {value!r}; it is one of {', '.join(allowed)}")
    return value.lower()


# -- a line's way ----------------------------------------------------------------------------------------------------
def _dressed(facts: Facts) -> Facts:
    status = _STATUS.get(str(facts.get("event")))
    if status is not None:
        facts.setdefault("status", status)
    for name, value in facts.items():
        facts[name] = redacted(name, value)
    return facts


def _spare_traceback(facts: Facts) -> Facts:
    """A database that cannot be reached is a fact, not a bug: its line says it, a stack would hide it."""
    given = facts.get("exc_info")
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, StoreError):
        del facts["exc_info"]
        facts.setdefault("reason", str(error))
    return facts


def _keep_with_attempt(facts: Facts) -> Facts:
    """What a handler says through structlog is kept with its attempt, as its lines through the standard library are."""
    from holdfast.engine.context import current_log

    log = current_log()
    if log is not None:
        said = {name: value for name, value in facts.items() if name not in ("event", "level", "timestamp")}
        at = datetime.fromisoformat(facts["timestamp"])
        log.add(at, str(facts["level"]).upper(), str(facts["event"]), said)
    return facts


def as_json(facts: Facts) -> str:
    return json.dumps(facts, default=str)


def as_text(facts: Facts) -> str:
    """`2026-01-31T09:30:00.000000Z [info     ] job.failed   job_id=… attempt=2`, and a traceback below it, indented.

    Facts that are None are left out: only programs need them. What handlers and others say makes no line of its own and
    reaches no terminal as it is: line ends and control characters are escaped, and only our own lines begin at the margin.
    """
    rest = dict(facts)
    at, level, event = (printable(str(rest.pop(name, ""))) for name in ("timestamp", "level", "event"))
    traces = [str(trace) for trace in (rest.pop("exception", None), rest.pop("traceback", None)) if trace]
    said = " ".join(
        f"{printable(str(name))}={_word(value)}" for name, value in rest.items() if value is not None
    )
    if sys.stderr.isatty():
        line = f"{_DIM}{at}{_PLAIN} {_COLOURS.get(level, '')}[{level:9}]{_PLAIN} {_BOLD}{event:<30}{_PLAIN} {said}"
    else:
        line = f"{at} [{level:9}] {event:<30} {said}"
    below = [f"  {line}".rstrip() for trace in traces for line in printable_lines(trace)]
    return "\n".join([line.rstrip(), *below])


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if text and text.isprintable() and " " not in text else repr(text)

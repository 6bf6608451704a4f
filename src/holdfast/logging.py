"""Logs of a Holdfast process: structured, on stderr, without secrets.

`HOLDFAST_LOG` is `console` (for people, the default) or `json` (one object a line). `HOLDFAST_LOG_LEVEL` is a
level, by default `info`. Holdfast's own commands call `configure()`. The library itself never does, so an
application that uses Holdfast keeps its own logging setup.

Logs go through the standard library, which adds nothing to a process's start. structlog is configured the
same way if the application has imported it. Holdfast does not import it: that would take a third of a
worker's start.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

from holdfast.attempt_log import current_log
from holdfast.errors import StoreError, UsageError
from holdfast.printable import printable, printable_lines
from holdfast.redaction import redacted

__all__ = ["Log", "configure"]

STYLES = ("console", "json")
LEVELS = ("debug", "info", "warning", "error", "critical")

#: The `status` of a log line, for the events whose name implies it (E63).
_STATUS = {
    "job.retry_scheduled": "queued",
    "job.released": "queued",
    "job.failed": "failed",
    "job.completed": "complete",
    "job.lease_lost": "lost",
}

#: Libraries that log every call at the level "info", with URLs that may contain secrets.
VERBOSE_LIBRARIES = ("httpx", "httpx2")

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_COLORS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}

Facts = MutableMapping[str, Any]


class LogMessage:
    """An event and its facts, as the message of a log record. As text it is readable in any logging setup."""

    __slots__ = ("event", "facts")

    def __init__(self, event: str, facts: dict[str, Any]) -> None:
        self.event, self.facts = event, facts

    def __str__(self) -> str:
        known = (f"{name}={value}" for name, value in self.facts.items() if value is not None)
        return " ".join([self.event, *known])


class Log:
    """A structured logger: each line is an event name and facts.

    Lines go to structlog if the application has configured it, otherwise to the standard library. In both
    cases the level of the standard logger of this name decides what is logged. For `holdfast` that is
    warnings and errors unless the application changes it, so that a program which only uses Holdfast does not
    get unexpected output. Secrets are hidden before the lines are passed on.
    """

    __slots__ = ("_name", "_std")

    def __init__(self, name: str) -> None:
        self._name, self._std = name, logging.getLogger(name)

    def debug(self, event: str, **facts: Any) -> None:
        self._emit(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: Any) -> None:
        self._emit(logging.INFO, event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        self._emit(logging.WARNING, event, facts)

    def error(self, event: str, **facts: Any) -> None:
        self._emit(logging.ERROR, event, facts)

    def exception(self, event: str, **facts: Any) -> None:
        """Log an error with the current exception's traceback. Only for bugs in Holdfast."""
        self._emit(logging.ERROR, event, facts, stack=True)

    def is_enabled_for(self, level: int) -> bool:
        """Return whether lines of this *level* are logged. Check it before gathering expensive facts."""
        return self._std.isEnabledFor(level)

    def _emit(self, level: int, event: str, facts: dict[str, Any], *, stack: bool = False) -> None:
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
    """Set up logging for this process.

    Args:
        keep: Keep the logging setup of the application, if it has one.
        quiet: Log only errors, unless `HOLDFAST_LOG_LEVEL` asks for more.

    Raises:
        UsageError: `HOLDFAST_LOG` or `HOLDFAST_LOG_LEVEL` has an unknown value.
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
        for name in VERBOSE_LIBRARIES:
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
            lambda _logger, _method, facts: _shorten_store_error(facts),
            structlog.processors.format_exc_info,
            lambda _logger, _method, facts: _with_status(facts),
            lambda _logger, _method, facts: _keep_with_attempt(facts),
            lambda _logger, _method, facts: render(facts),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # Look stderr up for each line, so that a program which replaces it gets the lines.
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
        _shorten_store_error(facts)
        if facts.pop("exc_info", None):
            facts["exception"] = _FORMATTER.formatException(record.exc_info)
    return _with_status(facts)


_FORMATTER = logging.Formatter()


def _one_of(name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = os.environ.get(name) or default
    if value.lower() not in allowed:
        raise UsageError(f"{name} is {value!r}; it is one of {', '.join(allowed)}")
    return value.lower()


# -- processing a line -------------------------------------------------------------------------------------
def _with_status(facts: Facts) -> Facts:
    """Add the `status` that the event implies, and hide secrets."""
    status = _STATUS.get(str(facts.get("event")))
    if status is not None:
        facts.setdefault("status", status)
    for name, value in facts.items():
        facts[name] = redacted(name, value)
    return facts


def _shorten_store_error(facts: Facts) -> Facts:
    """Replace the traceback of a `StoreError` by its message: an unreachable database is not a bug."""
    given = facts.get("exc_info")
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, StoreError):
        del facts["exc_info"]
        facts.setdefault("reason", str(error))
    return facts


def _keep_with_attempt(facts: Facts) -> Facts:
    """Add a line that a handler logs through structlog to the log of its attempt."""
    log = current_log()
    if log is not None:
        rest = {name: value for name, value in facts.items() if name not in ("event", "level", "timestamp")}
        at = datetime.fromisoformat(facts["timestamp"])
        log.add(at, str(facts["level"]).upper(), str(facts["event"]), rest)
    return facts


def as_json(facts: Facts) -> str:
    return json.dumps(facts, default=str)


def as_text(facts: Facts) -> str:
    """Return a line such as `2026-01-31T09:30:00.000000Z [info     ] job.failed   job_id=… attempt=2`.

    A traceback follows on indented lines. Facts that are None are left out. Line ends and control characters
    in foreign text are escaped, so that it can neither imitate a log line nor control the terminal.
    """
    rest = dict(facts)
    at, level, event = (printable(str(rest.pop(name, ""))) for name in ("timestamp", "level", "event"))
    traces = [str(trace) for trace in (rest.pop("exception", None), rest.pop("traceback", None)) if trace]
    facts_text = " ".join(
        f"{printable(str(name))}={_quoted(value)}" for name, value in rest.items() if value is not None
    )
    if sys.stderr.isatty():
        line = f"{_DIM}{at}{_PLAIN} {_COLORS.get(level, '')}[{level:9}]{_PLAIN} {_BOLD}{event:<30}{_PLAIN} {facts_text}"
    else:
        line = f"{at} [{level:9}] {event:<30} {facts_text}"
    below = [f"  {line}".rstrip() for trace in traces for line in printable_lines(trace)]
    return "\n".join([line.rstrip(), *below])


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if text and text.isprintable() and " " not in text else repr(text)

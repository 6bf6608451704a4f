"""Logs of a Holdfast process: structured, on stderr, without secrets.

`HOLDFAST_LOG` is `console` (for people, the default) or `json` (one object a line); `HOLDFAST_LOG_LEVEL` is a level,
`info` if not given. The front doors call `configure()`; the library itself never does, so an application that uses
Holdfast keeps its own set-up.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from typing import Any

from holdfast.errors import StoreError, UsageError

STYLES = ("console", "json")
LEVELS = ("debug", "info", "warning", "error", "critical")
HIDDEN = "***"

_SECRET_WORDS = {
    "password", "passwd", "passphrase", "secret", "token", "authorization", "apikey", "cookie", "credential",
    "credentials", "signature", "dsn",
}  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
# An address begins where its word begins: tried at every letter of it, a long text would take long.
#: A password in an address: everything up to the last @ before the host ends.
_IN_URL = re.compile(r"""((?<![\w+.-])[\w+.-]+://[^\s:/@"'<>]*):[^\s"'<>]+@""")
#: What an address asks for: keys and signatures travel there, and nobody can tell which words are harmless.
_QUERY = re.compile(r"""((?<![\w+.-])[\w+.-]+://[^\s?"'<>]*)\?[^\s"'<>]+""")
_NAMES = "password|passwd|passphrase|secret|token|api[-_]?key|authorization|cookie|signature|credentials?"
_NAMED = re.compile(rf"""({_NAMES})(["']?\s*[=:]\s*["']?)(?!(?:bearer|basic|digest)\s)[^\s&;,"'}}]+""", re.I)
_HEADER = re.compile(r"\b(bearer|basic|digest)\s+[A-Za-z0-9._~+/=-]{6,}", re.I)
#: Secrets that are known by their looks: JSON web tokens, keys of well-known services, our own.
_LOOKS = re.compile(
    r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*|\b(?:sk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bxox[abprs]-[\w-]{10,}|\bwhsec_[\w+/=-]{8,}|\bhf_[\w-]{20,}"
)

#: What became of the job, where the event's name says it (E63 `status`).
_STATUS = {
    "job.retry": "queued",
    "job.released": "queued",
    "job.failed": "failed",
    "job.completed": "complete",
    "job.taken_away": "lost",
}

#: Libraries that tell of every call at the level "info", with addresses that nobody has checked for secrets.
CHATTY = ("httpx", "httpx2")


def configure(*, keep: bool = False, quiet: bool = False) -> None:
    """Set up structlog and the standard library's logging for this process.

    *keep* what an app has set up itself; *quiet* says only errors, unless the environment asks for more.
    """
    import structlog

    style = _one_of("HOLDFAST_LOG", "console", STYLES)
    level = _one_of("HOLDFAST_LOG_LEVEL", "error" if quiet else "info", LEVELS)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_status,
        spare_traceback,
        structlog.processors.format_exc_info,
        redact,
    ]
    render: Any = (
        structlog.processors.JSONRenderer(default=str)
        if style == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    if not (keep and structlog.is_configured()):
        structlog.configure(
            processors=[*shared, keep_with_attempt, render],
            wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
            # The stream of the moment, not of the set-up: whoever swaps stderr gets the lines.
            logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
            cache_logger_on_first_use=False,
        )
    logging.getLogger("holdfast").setLevel(level.upper())
    root = logging.getLogger()
    if not root.handlers:
        handler = _ToStderr()
        handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
            )
        )
        root.addHandler(handler)
        root.setLevel(level.upper())
        for name in CHATTY:
            logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


def _one_of(name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = os.environ.get(name) or default
    if value.lower() not in allowed:
        raise UsageError(f"{name} is {value!r}; it is one of {', '.join(allowed)}")
    return value.lower()


# -- processors ------------------------------------------------------------------------------------------------------
def add_status(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    status = _STATUS.get(str(event.get("event")))
    if status is not None:
        event.setdefault("status", status)
    return event


def spare_traceback(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A database that cannot be reached is a fact, not a bug: its line says it, a stack would hide it."""
    given = event.get("exc_info")
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, StoreError):
        del event["exc_info"]
        event.setdefault("reason", str(error))
    return event


def keep_with_attempt(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """What a handler says through structlog is kept with its attempt, as its lines through the standard library are."""
    from holdfast.engine.context import current_log

    log = current_log()
    if log is not None:
        facts = {name: value for name, value in event.items() if name not in ("event", "level", "timestamp")}
        at = datetime.fromisoformat(event["timestamp"])
        log.add(at, str(event["level"]).upper(), str(event["event"]), facts)
    return event


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        event[key] = redacted(key, value)
    return event


def redacted(key: object, value: Any) -> Any:
    """*value* of this name, as it may be read."""
    if isinstance(key, str) and is_secret(key) and value is not None:
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {name: redacted(name, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(None, inner) for inner in value]
    return redact_text(str(value)) if isinstance(value, BaseException) else value


def is_secret(key: str) -> bool:
    """Whether a value of this name must not be read: `db_password`, `apiToken`, `Authorization`."""
    words = [word.lower() for word in _WORD.findall(key)]
    return not _SECRET_WORDS.isdisjoint(words) or "apikey" in "".join(words)


def redact_text(text: str) -> str:
    """*text* without the passwords and queries of URLs, values of `password=…`, credentials of headers, and keys that are
    known by their looks."""
    text = _IN_URL.sub(rf"\1:{HIDDEN}@", text)
    text = _QUERY.sub(rf"\1?{HIDDEN}", text)
    text = _HEADER.sub(rf"\1 {HIDDEN}", text)
    text = _NAMED.sub(rf"\1\2{HIDDEN}", text)
    return _LOOKS.sub(HIDDEN, text)

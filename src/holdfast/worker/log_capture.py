"""Hears what handlers say through the standard library's logging, and keeps it with their attempts.

One pair of ears for a process, however many workers it has. While it listens, a program that has not set up its logging
still sees its warnings on stderr: the standard library falls silent there as soon as anybody listens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from holdfast.engine.attempt_log import AttemptLog
from holdfast.engine.context import current_log

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DRESS = logging.Formatter()


class LogCapture(logging.Handler):
    """*find* says whose attempt it is that speaks, if any."""

    def __init__(self, find: Callable[[], AttemptLog | None]) -> None:
        super().__init__()
        self._find = find

    def emit(self, record: logging.LogRecord) -> None:
        log = self._find()
        if log is not None:
            try:
                at = _EPOCH + timedelta(seconds=record.created)
                log.add(at, record.levelname, f"{record.name}: {_words(record)}")
            except Exception:
                self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone(record.name):
            last.handle(record)

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


def _words(record: logging.LogRecord) -> str:
    if isinstance(record.msg, dict):  # structlog, before a formatter of its own makes text of it
        facts = {name: value for name, value in record.msg.items() if not name.startswith("_")}
        text = " ".join([str(facts.pop("event", "")), *(f"{name}={value}" for name, value in facts.items())])
    else:
        text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        text = f"{text}\n{_DRESS.formatException(record.exc_info)}"
    return text


_ears = LogCapture(current_log)
_listeners = 0


@contextmanager
def listening(wanted: bool = True) -> Iterator[None]:
    """Inside the block, what handlers say is kept with their attempts."""
    global _listeners
    if not wanted:
        yield
        return
    _listeners += 1
    logging.getLogger().addHandler(_ears)  # twice is once
    try:
        yield
    finally:
        _listeners -= 1
        if not _listeners:
            logging.getLogger().removeHandler(_ears)


@contextmanager
def heard(log: AttemptLog, level: int | None) -> Iterator[None]:
    """The same in a child process, which runs one attempt at a time. *level* is the worker's: the child has none of its
    own, unless the handler's module has set one up. None: nobody wants to hear."""
    if level is None:
        yield
        return
    root, ears = logging.getLogger(), LogCapture(lambda: log)
    if not root.handlers:
        root.setLevel(level)
    root.addHandler(ears)
    try:
        yield
    finally:
        root.removeHandler(ears)

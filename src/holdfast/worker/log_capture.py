"""Capture what handlers log through the standard library, and keep it with their attempts.

A process has one capturing handler, however many workers it runs. A program that has not configured logging
still sees its warnings on stderr while logs are captured, although the standard library stops printing them
there as soon as any handler is installed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from holdfast.attempt_log import AttemptLog, current_log

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMATTER = logging.Formatter()


class LogCapture(logging.Handler):
    """A logging handler that adds each record to the attempt log that *find_log* returns, if any."""

    def __init__(self, find_log: Callable[[], AttemptLog | None]) -> None:
        super().__init__()
        self._find_log = find_log

    def emit(self, record: logging.LogRecord) -> None:
        log = self._find_log()
        if log is not None:
            try:
                at = _EPOCH + timedelta(seconds=record.created)
                log.add(at, record.levelname, f"{record.name}: {_text_of(record)}")
            except Exception:
                self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_only_handler(record.name):
            last.handle(record)

    def _is_only_handler(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


def _text_of(record: logging.LogRecord) -> str:
    if isinstance(record.msg, dict):  # structlog, before its own formatter renders it
        facts = {name: value for name, value in record.msg.items() if not name.startswith("_")}
        text = " ".join([str(facts.pop("event", "")), *(f"{name}={value}" for name, value in facts.items())])
    else:
        text = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        text = f"{text}\n{_FORMATTER.formatException(record.exc_info)}"
    return text


_capture = LogCapture(current_log)
_capturing = 0


@contextmanager
def capture_logs(enabled: bool = True) -> Iterator[None]:
    """Keep what handlers log inside the block with their attempts, unless *enabled* is false."""
    global _capturing
    if not enabled:
        yield
        return
    _capturing += 1
    logging.getLogger().addHandler(_capture)  # adding it again has no effect
    try:
        yield
    finally:
        _capturing -= 1
        if not _capturing:
            logging.getLogger().removeHandler(_capture)


@contextmanager
def capture_logs_in_child(log: AttemptLog, level: int | None) -> Iterator[None]:
    """Keep what the handler in a child process logs inside the block in *log*.

    *level* is the worker's log level, used unless the handler's module has configured logging. None captures
    nothing.
    """
    if level is None:
        yield
        return
    root, capture = logging.getLogger(), LogCapture(lambda: log)
    if not root.handlers:
        root.setLevel(level)
    root.addHandler(capture)
    try:
        yield
    finally:
        root.removeHandler(capture)

"""The log of one attempt: its last lines, without secrets.

It is bounded because it is stored in the database. The oldest lines are dropped, because the last lines
before a failure matter most. Secrets are removed only when the lines are read: those of a successful attempt
rarely are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.redaction import redact_text, redacted

MOST_LINES = 200
MOST_BYTES = 16_000
#: Most characters of one line: enough for a stack, too few for a document.
LONGEST = 4_000


def _no_log() -> None:
    return None


_find: Callable[[], AttemptLog | None] = _no_log


def find_current_log(find: Callable[[], AttemptLog | None]) -> None:
    """Set the function that finds the log of the attempt that the calling code belongs to."""
    global _find
    _find = find


def current_log() -> AttemptLog | None:
    """Return the log of the attempt that the calling code belongs to, or None outside of a handler."""
    return _find()


class AttemptLog:
    """A bounded, thread-safe list of log lines."""

    __slots__ = ("_bytes", "_dropped", "_lines", "_lock")

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._bytes = self._dropped = 0
        self._lock = threading.Lock()

    def add(self, at: datetime, level: str, text: str, facts: Mapping[str, Any] | None = None) -> None:
        """Append a line made of time, level, text and facts; cut a text that is too long."""
        if facts:
            text = " ".join([text, *(_fact(name, value) for name, value in facts.items())])
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}… ({len(text):,} characters)"
        stamp = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.keep(f"{stamp} {level} {text}")

    def keep(self, line: str) -> None:
        """Append *line* unchanged and drop the oldest lines that no longer fit."""
        with self._lock:
            self._lines.append(line)
            self._bytes += _size(line)
            while len(self._lines) > MOST_LINES or self._bytes > MOST_BYTES:
                self._bytes -= _size(self._lines.popleft())
                self._dropped += 1

    def lines(self) -> tuple[str, ...]:
        """Return the lines without secrets, in characters that any store can hold."""
        with self._lock:
            lines, dropped = list(self._lines), self._dropped
        if dropped:
            lines.insert(0, f"… {dropped:,} earlier line{'s' * (dropped > 1)} dropped")
        return tuple(map(_storable, lines))


def _fact(name: str, value: object) -> str:
    try:
        return f"{name}={redacted(name, value)}"
    except Exception:  # its __str__ is not our code
        return f"{name}=(its text cannot be read)"


def _size(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode(errors="replace"))


def _storable(line: str) -> str:
    return redact_text(line.replace("\0", "�")).encode(errors="replace").decode()

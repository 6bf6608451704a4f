"""What was said during one attempt: the last lines of it, without secrets.

Bounded, because it is kept in the database; the oldest lines give way, because the end of a failure tells the most. Lines
are made presentable only when they are asked for: those of a successful attempt rarely are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.redaction import redact_text, redacted

MOST_LINES = 200
MOST_BYTES = 16_000
#: Characters of one line: a stack fits, a document does not.
LONGEST = 4_000


class AttemptLog:
    __slots__ = ("_bytes", "_dropped", "_lines", "_lock")

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._bytes = self._dropped = 0
        self._lock = threading.Lock()

    def add(self, at: datetime, level: str, text: str, facts: Mapping[str, Any] | None = None) -> None:
        if facts:
            text = " ".join([text, *(_fact(name, value) for name, value in facts.items())])
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}… ({len(text):,} characters)"
        stamp = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.keep(f"{stamp} {level} {text}")

    def keep(self, line: str) -> None:
        """Keep a line as it is; the oldest ones make room for it."""
        with self._lock:
            self._lines.append(line)
            self._bytes += _size(line)
            while len(self._lines) > MOST_LINES or self._bytes > MOST_BYTES:
                self._bytes -= _size(self._lines.popleft())
                self._dropped += 1

    def lines(self) -> tuple[str, ...]:
        """What there is to keep, in characters that any store can hold."""
        with self._lock:
            lines, dropped = list(self._lines), self._dropped
        if dropped:
            lines.insert(0, f"… {dropped:,} earlier line{'s' * (dropped > 1)} dropped")
        return tuple(map(_presentable, lines))


def _fact(name: str, value: object) -> str:
    try:
        return f"{name}={redacted(name, value)}"
    except Exception:  # its __str__ is not our code
        return f"{name}=(it has no words)"


def _size(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode(errors="replace"))


def _presentable(line: str) -> str:
    return redact_text(line.replace("\0", "�")).encode(errors="replace").decode()

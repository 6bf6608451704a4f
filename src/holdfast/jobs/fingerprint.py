"""Group errors by cause: mask what differs between two occurrences of the same failure (E70).

Numbers, ids, addresses, paths and quoted texts are masked. Words stay, because they distinguish one cause
from another.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

_MASKS = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>]+"), "<url>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"(?<![\w/])(?:/[\w.@-]+){2,}/?"), "<path>"),
    # Not inside a word: the apostrophes of "can't … won't" quote nothing.
    (re.compile(r"(?<!\w)'[^']{0,200}'(?!\w)|\"[^\"]{0,200}\""), "<text>"),
    # Masked as numbers, because a digest may consist of digits only.
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,}\b"), "<n>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)


def mask(message: str) -> str:
    """Return the first 500 characters of *message* with everything masked that varies between occurrences."""
    text = message[:500]
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text


@lru_cache(maxsize=4096)
def fingerprint(task: str, code: str, error_type: str, message: str) -> str:
    """Return twelve hex digits that are equal for failures of one cause.

    The type of the error distinguishes errors without a message.
    """
    parts = "\x1f".join((task, code, error_type, mask(message)))
    return blake2b(parts.encode(errors="replace"), digest_size=6).hexdigest()

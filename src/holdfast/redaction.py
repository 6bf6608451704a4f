"""Secrets do not leave the house: what is said, stored or shown goes through here first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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

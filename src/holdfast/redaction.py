"""Secrets do not leave the house: what is said, stored or shown goes through here first.

Texts come from strangers and may be long, so every step reads a text from left to right and takes time in proportion to its
length, whatever it holds (`tests/unit/test_patterns.py` measures it). A step is skipped where none of its words occurs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "***"

_SECRET_WORDS = {
    "password", "passwd", "passphrase", "secret", "token", "authorization", "apikey", "cookie", "credential",
    "credentials", "signature", "dsn",
}  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")

Spans = Iterable[tuple[int, int]]

#: Where an address begins: behind a word that is its scheme.
_SCHEME = re.compile(r"://(?<=[\w+.-]://)")
#: How far an address reaches.
_REST = re.compile(r"""[^\s"'<>]*+""")
#: The user of an address, up to its password. It holds no colon: no two matches read the same characters.
_USER = re.compile(r"://(?<=[\w+.-]://)[^:/@]*+:")

# These two read text in lower case, which is several times as fast as a pattern that ignores case.
_HEADERS = ("bearer", "basic", "digest")
_HEADER = re.compile(r"\b(?:bearer|basic|digest)(\s+[a-z0-9._~+/=-]{6,})")
_NAMES = (
    "password", "passwd", "passphrase", "secret", "token", "apikey", "api-key", "api_key", "authorization", "cookie",
    "signature", "credential",
)  # fmt: skip
_NAMED = re.compile(
    r"(?:password|passwd|passphrase|secret|token|api[-_]?key|authorization|cookie|signature|credentials?)"
    r"""["']?\s*[=:]\s*["']?(?!(?:bearer|basic|digest)\s)([^\s&;,"'}]+)"""
)

#: Secrets that are known by their looks: JSON web tokens (which begin with "eyJ"), keys of well-known services, our own.
_LOOKS = (
    "eyJ", "sk-", "sk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "AKIA", "ASIA", "xox", "whsec_", "hf_",
)  # fmt: skip
_KEY = re.compile(
    r"\b(?:eyJ|(?:sk|rk)[-_][\w-]{16,}|gh[pousr]_\w{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|xox[abprs]-[\w-]{10,}|whsec_[\w+/=-]{8,}|hf_[\w-]{20,})"
)
_WEB_TOKEN = re.compile(r"eyJ[\w-]{8,}+\.[\w-]{4,}+\.[\w-]*+")
_TOKEN_PART = re.compile(r"[\w-]*+")

#: Letters outside ASCII that patterns which ignore case take for these.
_ALSO = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"), ("\u212a", "k"))


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
    if "://" in text:
        text = _hide_in_addresses(text)
    lowered = _lowered(text)
    if _has(lowered, _HEADERS):
        text = _hide(text, (found.span(1) for found in _HEADER.finditer(lowered)), f" {HIDDEN}")
        lowered = _lowered(text)
    if _has(lowered, _NAMES):
        text = _hide(text, (found.span(1) for found in _NAMED.finditer(lowered)))
    return _hide(text, _keys(text)) if _has(text, _LOOKS) else text


def _has(text: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110 - `any` takes twice as long, and most texts are short
        if word in text:
            return True
    return False


def _lowered(text: str) -> str:
    """*text* in lower case, each letter at its place."""
    if not text.isascii():
        for letter, plain in _ALSO:
            text = text.replace(letter, plain)
    return text.lower()


def _hide(text: str, spans: Spans, shown: str = HIDDEN) -> str:
    """*text* with *shown* in the place of each span."""
    parts: list[str] = []
    place = 0
    for start, end in spans:
        parts += (text[place:start], shown)
        place = end
    return "".join([*parts, text[place:]])


def _hide_in_addresses(text: str) -> str:
    parts: list[str] = []
    place = 0
    while scheme := _SCHEME.search(text, place):
        start, end = scheme.start() - 1, _end_of(_REST, text, scheme.end())
        parts += (text[place:start], _without_secrets(text[start:end]))
        place = end
    return "".join([*parts, text[place:]])


def _without_secrets(address: str) -> str:
    """*address*, from the last letter of its scheme on, without its password: everything up to the last @. And without what
    it asks for: keys and signatures travel there, and no rule tells which words are harmless."""
    at = address.rfind("@")
    user = _USER.search(address, 0, max(at, 0))
    if user is not None and user.end() < at:
        address = address[: user.end()] + HIDDEN + address[at:]
    query = address.find("?")
    return address if query in (-1, len(address) - 1) else address[: query + 1] + HIDDEN


def _keys(text: str) -> Iterator[tuple[int, int]]:
    """Where keys are that are known by their looks. Of a run of letters that is no web token, no later "eyJ" begins one:
    it is read once."""
    place = spent = 0
    while found := _KEY.search(text, place):
        start, place = found.span()
        if found[0] != "eyJ":
            yield start, place
        elif start >= spent:
            token = _WEB_TOKEN.match(text, start)
            if token is None:
                spent = _end_of(_TOKEN_PART, text, start)
            else:
                place = token.end()
                yield start, place


def _end_of(run: re.Pattern[str], text: str, place: int) -> int:
    found = run.match(text, place)
    return place if found is None else found.end()

"""Hide secrets in everything that is logged, stored or shown.

Texts come from outside and may be long, so every step reads a text from left to right in linear time,
whatever it contains (`tests/project/test_patterns.py` measures it). A step is skipped when none of its keywords
occurs.
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

#: The start of a URL: "://" after a scheme.
_SCHEME = re.compile(r"://(?<=[\w+.-]://)")
#: The rest of a URL.
_REST = re.compile(r"""[^\s"'<>]*+""")
#: The user name in a URL, up to its password. It contains no colon, so no two matches read the same
#: characters.
_USER = re.compile(r"://(?<=[\w+.-]://)[^:/@]*+:")

# These patterns expect lower case, which is several times as fast as a pattern that ignores case.
_HEADERS = ("bearer", "basic", "digest")
_HEADER = re.compile(r"\b(?:bearer|basic|digest)(\s+[a-z0-9._~+/=-]{6,})")
_SECRET_NAMES = (
    "password", "passwd", "passphrase", "secret", "token", "apikey", "api-key", "api_key", "authorization", "cookie",
    "signature", "credential",
)  # fmt: skip
_NAMED_SECRET = re.compile(
    r"(?:password|passwd|passphrase|secret|token|api[-_]?key|authorization|cookie|signature|credentials?)"
    r"""["']?\s*[=:]\s*["']?(?!(?:bearer|basic|digest)\s)([^\s&;,"'}]+)"""
)

#: Prefixes of secrets with a known form: JSON web tokens ("eyJ"), keys of well-known services, our own keys.
_KEY_PREFIXES = (
    "eyJ", "sk-", "sk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "AKIA", "ASIA", "xox", "whsec_", "hf_",
)  # fmt: skip
_KEY = re.compile(
    r"\b(?:eyJ|(?:sk|rk)[-_][\w-]{16,}|gh[pousr]_\w{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|xox[abprs]-[\w-]{10,}|whsec_[\w+/=-]{8,}|hf_[\w-]{20,})"
)
_WEB_TOKEN = re.compile(r"eyJ[\w-]{8,}+\.[\w-]{4,}+\.[\w-]*+")
_TOKEN_PART = re.compile(r"[\w-]*+")

#: Letters outside ASCII that a pattern which ignores case would match as these ASCII letters.
_CASE_VARIANTS = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"), ("\u212a", "k"))


def redacted(key: object, value: Any) -> Any:
    """Return *value* without secrets; a value whose *key* names a secret is hidden completely."""
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
    """Return whether *key* names a secret, e.g. `db_password`, `apiToken` or `Authorization`."""
    words = [word.lower() for word in _WORD.findall(key)]
    return not _SECRET_WORDS.isdisjoint(words) or "apikey" in "".join(words)


def redact_text(text: str) -> str:
    """Return *text* without secrets.

    It hides passwords and queries of URLs, values of `password=…`, credentials in headers, and keys with a
    known form.
    """
    if "://" in text:
        text = _hide_in_urls(text)
    lowered = _lowered(text)
    if _contains_any(lowered, _HEADERS):
        text = _hide(text, (found.span(1) for found in _HEADER.finditer(lowered)), f" {HIDDEN}")
        lowered = _lowered(text)
    if _contains_any(lowered, _SECRET_NAMES):
        text = _hide(text, (found.span(1) for found in _NAMED_SECRET.finditer(lowered)))
    return _hide(text, _key_spans(text)) if _contains_any(text, _KEY_PREFIXES) else text


def _contains_any(text: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110 - `any` takes twice as long, and most texts are short
        if word in text:
            return True
    return False


def _lowered(text: str) -> str:
    """Return *text* in lower case and of the same length, so that positions in both are equal."""
    if not text.isascii():
        for letter, plain in _CASE_VARIANTS:
            text = text.replace(letter, plain)
    return text.lower()


def _hide(text: str, spans: Spans, shown: str = HIDDEN) -> str:
    """Return *text* with each span replaced by *shown*."""
    parts: list[str] = []
    place = 0
    for start, end in spans:
        parts += (text[place:start], shown)
        place = end
    return "".join([*parts, text[place:]])


def _hide_in_urls(text: str) -> str:
    parts: list[str] = []
    place = 0
    while scheme := _SCHEME.search(text, place):
        start, end = scheme.start() - 1, _end_of(_REST, text, scheme.end())
        parts += (text[place:start], _without_secrets(text[start:end]))
        place = end
    return "".join([*parts, text[place:]])


def _without_secrets(url: str) -> str:
    """Return *url* without its password and query. It starts at the last letter of its scheme.

    The password reaches to the last @. The whole query is hidden, because it may contain keys and signatures
    under any name.
    """
    at = url.rfind("@")
    user = _USER.search(url, 0, max(at, 0))
    if user is not None and user.end() < at:
        url = url[: user.end()] + HIDDEN + url[at:]
    query = url.find("?")
    return url if query in (-1, len(url) - 1) else url[: query + 1] + HIDDEN


def _key_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of keys with a known form.

    A run of letters that is not a web token is read once: no later "eyJ" in it can begin one.
    """
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

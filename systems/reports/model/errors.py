"""The errors of providers in our taxonomy (P3, P4): by status, by the error in a body, and by what the network did.

Nothing that a provider says gets into a message or a log: some repeat the key that they refuse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import httpx2

from systems.reports.codes import Code
from systems.reports.failures import Answered, Trouble

_WORD = re.compile(r"[a-z0-9_.-]{1,60}")
#: "6m0s", "1.5s", "20ms", and a plain number of seconds.
_SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_RESETS = ("requests", "tokens")
LONGEST_WAIT_SEC = 86_400


def of_status(status: int, headers: Mapping[str, str], body: Any = None) -> Trouble:
    """What an answer with this *status* is. Every 4xx but 429 is for good: also 408 and 409 (ADR 0009)."""
    word = error_word(body)
    reason = f"the model answered {status}" + (f" ({word})" if word else "")
    if status == 429:
        return Trouble(Code.MODEL_THROTTLED, reason, Answered(429, _with_wait(headers)))
    if 500 <= status <= 599:
        return Trouble(Code.MODEL_5XX, reason, Answered(status, _with_wait(headers)))
    answered = Answered(status) if 400 <= status <= 499 else None
    return Trouble(Code.MODEL_FILTERED if _is_filter(word) else Code.MODEL_4XX, reason, answered)


def of_body(error: Any, headers: Mapping[str, str]) -> Trouble:
    """An error that came in the body of a 200, or in the middle of a stream."""
    given = error if isinstance(error, Mapping) else {}
    for name in ("status", "code"):
        if str(given.get(name)).isdigit() and 400 <= int(str(given[name])[:9]) <= 599:
            return of_status(int(given[name]), headers, {"error": given})
    word = error_word({"error": given})
    reason = (
        f"the model answered 200 with an error ({word})" if word else "the model answered 200 with an error"
    )
    if re.search(r"rate_limit|throttl|too_many|quota", word):
        return Trouble(Code.MODEL_THROTTLED, reason, Answered(429, _with_wait(headers)))
    if _is_filter(word):
        return Trouble(Code.MODEL_FILTERED, reason)
    if re.search(r"invalid|context_length|not_found|authentication|permission|unsupported|billing", word):
        return Trouble(Code.MODEL_4XX, reason)
    return Trouble(Code.MODEL_5XX, reason)


def of_network(error: Exception) -> Trouble:
    """What httpx2 raises: the time was up, or the connection did not hold."""
    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return Trouble(Code.MODEL_TIMEOUT, f"no answer in time ({type(error).__name__})")
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        return Trouble(Code.MODEL_4XX, "MODEL_URL cannot be called")
    return Trouble(Code.MODEL_UNREACHABLE, f"the connection did not hold ({type(error).__name__})")


def error_word(body: Any) -> str:
    """The error's own code or type, if it is a plain word; never its message."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return ""
    said = [str(error.get(name) or "").lower() for name in ("code", "type")]
    return next((word for word in said if _WORD.fullmatch(word)), "")


def _is_filter(word: str) -> bool:
    return "content_filter" in word or "content_policy" in word


def _with_wait(headers: Mapping[str, str]) -> dict[str, str]:
    """Only what the engine reads: Retry-After, taken from the other places where providers say the same."""
    if given := headers.get("retry-after"):
        return {"retry-after": given}
    wait = _milliseconds(headers.get("retry-after-ms", ""))
    if wait is None:
        waits = [
            span
            for name in _RESETS
            if headers.get(f"x-ratelimit-remaining-{name}", "0").strip() in ("0", "")
            and (span := parse_span(headers.get(f"x-ratelimit-reset-{name}", ""))) is not None
        ]
        wait = max(waits, default=None)
    return {} if not wait else {"retry-after": str(min(math.ceil(wait), LONGEST_WAIT_SEC))}


def _milliseconds(text: str) -> float | None:
    return float(text) / 1000 if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text) else None


def parse_span(text: str) -> float | None:
    """Seconds in a rate limit's reset; None for a moment or nonsense, which then asks for nothing."""
    text = text.strip()
    if re.fullmatch(r"\d{1,5}(\.\d{1,9})?", text):
        return float(text)
    found = _SPAN.fullmatch(text) if 0 < len(text) <= 30 else None
    if found is None:
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000

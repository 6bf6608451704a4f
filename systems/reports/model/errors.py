"""Maps the errors of providers to our codes (P3, P4): HTTP statuses, errors in a body, network failures.

No provider text gets into a message or a log, because some providers repeat the key that they reject.
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
#: Durations such as "6m0s", "1.5s" and "20ms".
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_RESETS = ("requests", "tokens")
LONGEST_WAIT_SEC = 86_400


def of_status(status: int, headers: Mapping[str, str], body: Any = None) -> Trouble:
    """Return the error for a response with this *status*.

    Every 4xx except 429 is final, 408 and 409 too (ADR 0009).
    """
    word = error_word(body)
    reason = f"the model answered {status}" + (f" ({word})" if word else "")
    if status == 429:
        return Trouble(Code.MODEL_THROTTLED, reason, Answered(429, _with_wait(headers)))
    if 500 <= status <= 599:
        return Trouble(Code.MODEL_5XX, reason, Answered(status, _with_wait(headers)))
    answered = Answered(status) if 400 <= status <= 499 else None
    return Trouble(Code.MODEL_FILTERED if _is_filter(word) else Code.MODEL_4XX, reason, answered)


def of_body(error: Any, headers: Mapping[str, str]) -> Trouble:
    """Return the error for an error object in the body of a 200, or in a stream."""
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
    """Return the error for an exception of httpx2: a timeout, an unusable URL, or a failed connection."""
    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return Trouble(Code.MODEL_TIMEOUT, f"no answer in time ({type(error).__name__})")
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        return Trouble(Code.MODEL_4XX, "MODEL_URL is not a URL that can be called")
    return Trouble(Code.MODEL_UNREACHABLE, f"the connection failed ({type(error).__name__})")


def error_word(body: Any) -> str:
    """Return the error's code or type if it is a plain word, else an empty text. Never its message."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return ""
    words = [str(error.get(name) or "").lower() for name in ("code", "type")]
    return next((word for word in words if _WORD.fullmatch(word)), "")


def _is_filter(word: str) -> bool:
    return "content_filter" in word or "content_policy" in word


def _with_wait(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the provider's wait as a Retry-After header, which the engine reads; empty if there is none."""
    if given := headers.get("retry-after"):
        return {"retry-after": given}
    wait = _milliseconds(headers.get("retry-after-ms", ""))
    if wait is None:
        waits = [
            duration
            for name in _RESETS
            if headers.get(f"x-ratelimit-remaining-{name}", "0").strip() in ("0", "")
            and (duration := parse_span(headers.get(f"x-ratelimit-reset-{name}", ""))) is not None
        ]
        wait = max(waits, default=None)
    return {} if not wait else {"retry-after": str(min(math.ceil(wait), LONGEST_WAIT_SEC))}


def _milliseconds(text: str) -> float | None:
    return float(text) / 1000 if re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text) else None


def parse_span(text: str) -> float | None:
    """Return the seconds in a rate limit's reset header; None for a date or an unreadable text."""
    text = text.strip()
    if re.fullmatch(r"\d{1,5}(\.\d{1,9})?", text):
        return float(text)
    found = _DURATION.fullmatch(text) if 0 < len(text) <= 30 else None
    if found is None:
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000

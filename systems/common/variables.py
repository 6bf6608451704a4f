"""Settings from environment variables.

Each has a reader that parses the text or raises an error with the valid form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast import UsageError

#: Takes the variable's name and its text, and returns the value. Raises `UsageError` with the valid form.
Reader = Callable[[str, str], Any]


def read_variables(readers: Mapping[str, Reader], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that are set, by their names in lower case. An empty variable counts as not set."""
    values: dict[str, Any] = {}
    for name, read in readers.items():
        variable = name.upper()
        if text := environment.get(variable, "").strip():
            values[name] = read(variable, text)
    return values


def whole(minimum: int, maximum: int) -> Reader:
    """Return a reader of whole numbers from *minimum* to *maximum*."""

    def read(variable: str, text: str) -> int:
        # `int` would accept "1_000" and digits of other scripts. No setting needs more than 12 digits.
        if not (text.isascii() and text.isdigit() and len(text) <= 12) or not minimum <= int(text) <= maximum:
            raise UsageError(f"{variable} is {text[:40]!r}; it is a whole number from {minimum} to {maximum}")
        return int(text)

    return read


def amount(maximum: float) -> Reader:
    """Return a reader of numbers from 0 to *maximum*."""

    def read(variable: str, text: str) -> float:
        if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text) or float(text) > maximum:
            raise UsageError(f"{variable} is {text[:40]!r}; it is a number from 0 to {maximum:g}")
        return float(text)

    return read


def share(variable: str, text: str) -> float:
    """Read a share above 0 and at most 1."""
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,20}", text) or not 0 < float(text) <= 1:
        raise UsageError(f"{variable} is {text[:40]!r}; it is a share above 0 and at most 1, e.g. 0.5")
    return float(text)


def switch(variable: str, text: str) -> bool:
    """Read true or false."""
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise UsageError(f"{variable} is {text[:40]!r}; it is true or false")
    return text.lower() in ("true", "1", "yes")


def one_of(*words: str) -> Reader:
    """Return a reader that accepts only *words*."""

    def read(variable: str, text: str) -> str:
        if text not in words:
            raise UsageError(f"{variable} is {text[:40]!r}; it is one of {', '.join(words)}")
        return text

    return read


def window(variable: str, text: str) -> str:
    """Read the window of a breaker: a number of calls or a time."""
    if not re.fullmatch(r"[1-9][0-9]{0,3}|[1-9][0-9]{0,4}(s|m|h)", text):
        raise UsageError(f'{variable} is {text[:40]!r}; it is a number of calls ("20") or a time ("120s")')
    return text


def rate(variable: str, text: str) -> str:
    """Read a rate, such as "300/min"."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}/(s|min|h|day)", text):
        raise UsageError(f'{variable} is {text[:40]!r}; it is a count and a time, e.g. "300/min"')
    return text


def service(example: str) -> Reader:
    """Return a reader of HTTP addresses without a password. It strips the slash at the end."""

    def read(variable: str, text: str) -> str:
        try:
            parts = urlsplit(text)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
            _ = parts.port
        except ValueError:
            valid = False
        if not valid:  # the address itself is not shown: it may hold a password
            raise UsageError(
                f"{variable} does not name a service; it is an address such as {example}, without a password"
            )
        return text.rstrip("/")

    return read


def server(*schemes: str) -> Reader:
    """Return a reader of server addresses with one of *schemes*. They may hold a password."""

    def read(variable: str, text: str) -> str:
        try:
            parts = urlsplit(text)
            valid = parts.scheme in schemes and bool(parts.hostname)
            # A password must write @ as %40: drivers would otherwise print part of it as host and port.
            valid = valid and text.count("@") == parts.netloc.count("@") <= 1
            _ = parts.port
        except ValueError:
            valid = False
        if not valid:
            raise UsageError(f"{variable} does not name a server; it begins with {schemes[0]}:// and a host")
        return text

    return read


def text(_: str, value: str) -> str:
    """Read any text."""
    return value


def folder(_: str, value: str) -> Path:
    """Read the path of a folder."""
    return Path(value)

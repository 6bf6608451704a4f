"""Knobs by environment: each a variable in capitals, read by a reader that says what it takes when it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast import UsageError

#: Given the variable's name and its text; `UsageError` says what the text may be.
Reader = Callable[[str, str], Any]


def read_knobs(readers: Mapping[str, Reader], environment: Mapping[str, str]) -> dict[str, Any]:
    """What is set, by the knob's name. An empty variable counts as not set."""
    values: dict[str, Any] = {}
    for name, read in readers.items():
        variable = name.upper()
        if text := environment.get(variable, "").strip():
            values[name] = read(variable, text)
    return values


def whole(least: int, most: int) -> Reader:
    def read(variable: str, text: str) -> int:
        # `int` would take "1_000" and digits of other scripts; more than 12 of them are no setting.
        if not (text.isascii() and text.isdigit() and len(text) <= 12) or not least <= int(text) <= most:
            raise UsageError(f"{variable} is {text[:40]!r}; it is a whole number from {least} to {most}")
        return int(text)

    return read


def amount(most: float) -> Reader:
    def read(variable: str, text: str) -> float:
        if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", text) or float(text) > most:
            raise UsageError(f"{variable} is {text[:40]!r}; it is a number from 0 to {most:g}")
        return float(text)

    return read


def share(variable: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,20}", text) or not 0 < float(text) <= 1:
        raise UsageError(f"{variable} is {text[:40]!r}; it is a share above 0 and at most 1, e.g. 0.5")
    return float(text)


def switch(variable: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise UsageError(f"{variable} is {text[:40]!r}; it is true or false")
    return text.lower() in ("true", "1", "yes")


def one_of(*words: str) -> Reader:
    def read(variable: str, text: str) -> str:
        if text not in words:
            raise UsageError(f"{variable} is {text[:40]!r}; it is one of {', '.join(words)}")
        return text

    return read


def window(variable: str, text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,3}|[1-9][0-9]{0,4}(s|m|h)", text):
        raise UsageError(f'{variable} is {text[:40]!r}; it is a number of calls ("20") or a time ("120s")')
    return text


def rate(variable: str, text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,8}/(s|min|h|day)", text):
        raise UsageError(f'{variable} is {text[:40]!r}; it is a count and a time, e.g. "300/min"')
    return text


def service(example: str) -> Reader:
    """An http address, without a slash at its end."""

    def read(variable: str, text: str) -> str:
        try:
            parts = urlsplit(text)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
            _ = parts.port
        except ValueError:
            known = False
        if not known:  # the address itself is not shown: it may hold a password
            raise UsageError(
                f"{variable} does not name a service; it is an address such as {example}, without a password"
            )
        return text.rstrip("/")

    return read


def server(*schemes: str) -> Reader:
    """The address of a server, with or without a password in it."""

    def read(variable: str, text: str) -> str:
        try:
            parts = urlsplit(text)
            known = parts.scheme in schemes and bool(parts.hostname)
            # Another @ belongs into a password as %40: drivers would show what they take for host and port.
            known = known and text.count("@") == parts.netloc.count("@") <= 1
            _ = parts.port
        except ValueError:
            known = False
        if not known:
            raise UsageError(f"{variable} does not name a server; it begins with {schemes[0]}:// and a host")
        return text

    return read


def text(_: str, given: str) -> str:
    return given


def folder(_: str, given: str) -> Path:
    return Path(given)

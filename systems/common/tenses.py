"""What a code says to people, in two tenses: while it will be tried again, and once it has failed."""

from __future__ import annotations

from typing import NamedTuple

_LATER = "Trying again did not help; use Retry later."


class Known(NamedTuple):
    status: int  #: of the answer in which it stands
    again: bool  #: whether it is tried again
    trying: str  #: while it will be; the same as *final* for what is never tried again
    final: str


def fatal(status: int, text: str) -> Known:
    return Known(status, False, text, text)


def passing(status: int, text: str, final: str = _LATER) -> Known:
    return Known(status, True, f"{text} It will be tried again.", f"{text} {final}")

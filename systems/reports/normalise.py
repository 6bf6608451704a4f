"""Extracts a JSON value from a model's answer, by unambiguous repairs that are each recorded (P4).

Attempts, in order: the text as it is; without a block of thoughts before it; the content of its one code
fence; the one object or list within prose. Each attempt also drops commas before a closing bracket. Where two
values could be meant, or an object has the same name twice, nothing is guessed: the text is not JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
#: A string, closed or not, or a comma between a value and a closing bracket. Matching is linear in the text.
_COMMAS = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|(?<=[\w"}\]])(\s*+),(?=\s*+[}\]])', re.DOTALL)
#: How many opening brackets of a text are tried as the start of a value.
_MOST_STARTS = 50
_DEEPEST = 64


class Normalised(NamedTuple):
    """A value, and the repairs that were needed to extract it."""

    value: Any
    repairs: list[str]


class NotJson(Exception):
    """The text does not hold exactly one JSON value; the message says why."""


def normalise(text: str) -> Normalised:
    """Return the JSON value in *text* and the repairs that were made. Raises `NotJson`."""
    text = text.removeprefix("\ufeff").strip()
    repairs: list[str] = []
    stripped = _THOUGHTS.sub("", text).strip()
    if stripped != text:
        text, repairs = stripped, ["thinking"]
    if not text:
        raise NotJson("the answer is empty")
    if (found := _parse(text)) is not None:
        return Normalised(found.value, [*repairs, *found.repairs])
    fenced = [found for block in _fenced(text) if (found := _parse(block.strip())) is not None]
    if fenced:
        return _only(fenced, [*repairs, "code_fence"])
    for repaired, more in ((text, []), (_without_trailing_commas(text), ["trailing_comma"])):
        if values := list(_in_prose(repaired)):
            return _only(values, [*repairs, "prose", *more])
    raise NotJson("the answer holds no JSON object or list")


def _fenced(text: str) -> Iterator[str]:
    """Yield the content of each code fence: the text between two lines of three backticks."""
    inside: list[str] | None = None
    for line in text.splitlines(keepends=True):
        if not line.strip().startswith("```"):
            if inside is not None:
                inside.append(line)
        elif inside is None:
            inside = []
        else:
            yield "".join(inside)
            inside = None


def _only(found: list[Normalised], repairs: list[str]) -> Normalised:
    """Return the one value in *found*; raise `NotJson` if there are different ones."""
    if any(other.value != found[0].value for other in found[1:]):
        raise NotJson("the answer holds more than one JSON value")
    return Normalised(found[0].value, [*repairs, *found[0].repairs])


def _in_prose(text: str) -> Iterator[Normalised]:
    """Yield the outermost JSON objects and lists in *text*."""
    position = 0
    for _ in range(_MOST_STARTS):
        opening = _OPENING.search(text, position)
        if opening is None:
            return
        position = opening.end()
        try:
            value, end = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            continue
        if value and _depth_is_sane(value):
            yield Normalised(value, [])
            position = end


def _parse(text: str) -> Normalised | None:
    """Decode *text*, as it is or without commas before a closing bracket; None if neither is JSON."""
    for repaired, repairs in ((text, []), (_without_trailing_commas(text), ["trailing_comma"])):
        try:
            value = _DECODER.decode(repaired)
        except (ValueError, RecursionError):
            continue
        return Normalised(value, list(repairs)) if _depth_is_sane(value) else None
    return None


def _without_trailing_commas(text: str) -> str:
    """Drop commas between a value and a closing bracket. `[,]` and `[1,,]` stay as they are."""
    return _COMMAS.sub(lambda found: found[1] or found[2] or "", text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    decoded = dict(pairs)
    if len(decoded) != len(pairs):
        raise ValueError("an object has the same name twice")
    return decoded


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


_OPENING = re.compile(r"[{\[]")
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse, parse_float=_number)


def _depth_is_sane(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False

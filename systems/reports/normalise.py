"""From what a model said to a JSON value, by repairs that leave no doubt; each one is recorded (P4).

Tried in this order: as it is; without a block of thoughts before it; the content of its one code fence; the one object or
list that stands in prose. In each of them commas before a closing bracket are dropped. Where two values could be meant,
or a name stands twice in an object, nothing is guessed: it is not JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
#: A string, closed or not, or a comma behind a value and before a bracket. Each character is looked at once.
_COMMAS = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|(?<=[\w"}\]])(\s*+),(?=\s*+[}\]])', re.DOTALL)
#: Places in a text at which a value is looked for; a text with more is no report.
_MOST_PLACES = 50
_DEEPEST = 64


class Normalised(NamedTuple):
    value: Any
    repairs: list[str]


class NotJson(Exception):
    """There is no one JSON value in it; the words say why."""


def normalise(text: str) -> Normalised:
    """The value in *text*, and what was done to find it."""
    text = text.removeprefix("\ufeff").strip()
    repairs: list[str] = []
    stripped = _THOUGHTS.sub("", text).strip()
    if stripped != text:
        text, repairs = stripped, ["thinking"]
    if not text:
        raise NotJson("it is empty")
    if (found := _parse(text)) is not None:
        return Normalised(found.value, [*repairs, *found.repairs])
    fenced = [found for block in _fenced(text) if (found := _parse(block.strip())) is not None]
    if fenced:
        return _only(fenced, [*repairs, "code_fence"])
    for meant, more in ((text, []), (_without_trailing_commas(text), ["trailing_comma"])):
        if found_there := list(_in_prose(meant)):
            return _only(found_there, [*repairs, "prose", *more])
    raise NotJson("no part of it is a JSON object or list")


def _fenced(text: str) -> Iterator[str]:
    """What stands between two lines of three backticks."""
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
    if any(other.value != found[0].value for other in found[1:]):
        raise NotJson("it holds more than one JSON value")
    return Normalised(found[0].value, [*repairs, *found[0].repairs])


def _in_prose(text: str) -> Iterator[Normalised]:
    """The objects and lists of *text* that stand in no other."""
    place = 0
    for _ in range(_MOST_PLACES):
        opening = _OPENING.search(text, place)
        if opening is None:
            return
        place = opening.end()
        try:
            value, end = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            continue
        if value and _depth_is_sane(value):
            yield Normalised(value, [])
            place = end


def _parse(text: str) -> Normalised | None:
    """*text* as JSON, as it is or without commas that stand before a closing bracket."""
    for repaired, repairs in ((text, []), (_without_trailing_commas(text), ["trailing_comma"])):
        try:
            value = _DECODER.decode(repaired)
        except (ValueError, RecursionError):
            continue
        return Normalised(value, list(repairs)) if _depth_is_sane(value) else None
    return None


def _without_trailing_commas(text: str) -> str:
    """Only where a value stands before the comma: `[,]` and `[1,,]` stay as they are."""
    return _COMMAS.sub(lambda found: found[1] or found[2] or "", text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return made


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

"""Whether a value that was written as JSON and read again is still the same, in type and content."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum
from types import NoneType
from typing import Any

import msgspec

#: What JSON keeps as it is.
SCALARS = frozenset({NoneType, bool, int, float, str})
_is_scalar, _is_text = SCALARS.issuperset, frozenset({str}).issuperset


def is_plain(value: Any) -> bool:
    """Return whether *value* is made of what JSON keeps: texts, numbers, lists, and dicts with texts as keys."""
    kind = type(value)
    if kind is dict:
        if not _is_text(map(type, value)):
            return False
        value = value.values()
    elif kind is not list:
        return kind in SCALARS
    for one in value:  # a call for each would take longer than to encode it
        kind = type(one)
        if kind not in SCALARS and not ((kind is dict or kind is list) and is_plain(one)):
            return False
    return True


def is_same(given: Any, found: Any, *, exact: bool = True) -> bool:
    """Return whether *found* is what was *given*. Unless *exact*, a member of an Enum may be its plain value."""
    kind = type(given)
    if kind is not type(found):
        if kind is msgspec.Raw:  # JSON that the caller made
            return True
        return not exact and isinstance(given, Enum) and type(found) in SCALARS and bool(given == found)
    if kind in SCALARS:
        return bool(given == found)
    if kind is list or kind is tuple:
        if _is_scalar(map(type, given)):
            return bool(given == found)
        return len(given) == len(found) and all(
            is_same(one, other, exact=exact) for one, other in zip(given, found, strict=True)
        )
    if kind is dict:
        if _is_text(map(type, given)) and _is_scalar(map(type, given.values())):
            return bool(given == found)
        return len(given) == len(found) and all(
            is_same(one[0], other[0], exact=exact) and is_same(one[1], other[1], exact=exact)
            for one, other in zip(given.items(), found.items(), strict=True)
        )
    names = _fields(given)
    if names is None:
        return bool(given == found)
    return all(is_same(getattr(given, n, None), getattr(found, n, None), exact=exact) for n in names)


def _fields(value: Any) -> list[str] | None:
    """Return the fields that make up *value*, where its own `==` may say too little or too much; else None."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init]
    names = getattr(value, "__struct_fields__", None) or getattr(type(value), "model_fields", None)
    return list(names) if names and not isinstance(value, type) else None


def difference(given: Any, found: Any, place: str) -> str:
    """Return what changes first inside of *given*, by its place and types. Contents are left out: errors are logged."""
    for one, other, inside in _inside(given, found, place):
        if not is_same(one, other):
            return difference(one, other, inside)
    if type(given) is type(found):
        return f"{place} is {_a(given)} that JSON cannot hold completely"
    return f"{place} is {_a(given)} and would become {_a(found)}"


def _inside(given: Any, found: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    if type(given) is not type(found):
        return
    if isinstance(given, list | tuple):
        for nth, (one, other) in enumerate(zip(given, found, strict=False)):
            yield one, other, f"{place}[{nth}]"
    elif isinstance(given, dict):
        for (key, one), (name, other) in zip(given.items(), found.items(), strict=False):
            yield key, name, f"a key of {place}"
            yield one, other, f"{place}[…]"
    else:
        for field in _fields(given) or ():
            yield getattr(given, field, None), getattr(found, field, None), f"{place}.{field}"


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"

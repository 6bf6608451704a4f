"""Whether a value that was written as JSON and read again is still equal to what it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec


def is_same(given: Any, found: Any) -> bool:
    """Return whether *found* is equal to what was *given*, also where objects inside have no `==` of their own."""
    if given == found or type(given) is msgspec.Raw:  # that is JSON which the caller made
        return True
    if type(given) is not type(found) or not _is_as_long(given, found):
        return False
    parts = list(_inside(given, found, ""))
    return bool(parts) and all(is_same(one, other) for one, other, _ in parts)


def difference(given: Any, found: Any, place: str) -> str:
    """Return what changes first inside of *given*, by its place and types. Contents are left out: errors are logged."""
    for one, other, inside in _inside(given, found, place):
        if not is_same(one, other):
            return difference(one, other, inside)
    if type(given) is type(found):
        return f"{place} is {_a(given)} that JSON cannot hold completely"
    return f"{place} is {_a(given)} and would become {_a(found)}"


def _is_as_long(given: Any, found: Any) -> bool:
    return not isinstance(given, list | tuple | dict) or len(given) == len(found)


def _inside(given: Any, found: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield what the two are made of, side by side and with its place; nothing where they are of different types."""
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
        for field in _fields(given):
            yield getattr(given, field, None), getattr(found, field, None), f"{place}.{field}"


def _fields(value: Any) -> list[str]:
    """Return the fields that make up an object: what else it holds (private attributes, caches) is not stored."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init]
    names = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "model_fields", None)
    return list(names or ())


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"

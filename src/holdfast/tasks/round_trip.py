"""Compare a value with what comes back after it was written as JSON and read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec


def is_same(given: Any, found: Any) -> bool:
    """Return whether *found* equals *given*, even if objects inside do not define `==`."""
    if given == found or type(given) is msgspec.Raw:  # raw JSON from the caller
        return True
    if type(given) is not type(found) or not _has_same_length(given, found):
        return False
    parts = list(_parts(given, found, ""))
    return bool(parts) and all(is_same(one, other) for one, other, _ in parts)


def difference(given: Any, found: Any, place: str) -> str:
    """Describe the first difference by its place and types.

    Contents are left out, because errors are logged.
    """
    for one, other, inside in _parts(given, found, place):
        if not is_same(one, other):
            return difference(one, other, inside)
    if type(given) is type(found):
        return f"{place} is {_type_name(given)} that JSON cannot hold completely"
    return f"{place} is {_type_name(given)} and would become {_type_name(found)}"


def _has_same_length(given: Any, found: Any) -> bool:
    return not isinstance(given, list | tuple | dict) or len(given) == len(found)


def _parts(given: Any, found: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield pairs of the parts of both values with their place. Values of different types have no parts."""
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
    """Return the names of an object's stored fields, without private attributes and caches."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init]
    names = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "model_fields", None)
    return list(names or ())


def _type_name(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"

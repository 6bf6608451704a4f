"""The type of an argument or a result, and whether a value of it survives being stored as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.engine.annotations import as_annotated, convert, is_settled, readable
from holdfast.engine.round_trip import difference, is_same


class ValueType:
    """What an annotation says about a value."""

    def __init__(self, annotation: Any) -> None:
        #: What fits it comes back as nothing else: there is nothing to compare.
        self.is_settled = is_settled(annotation)
        self.kind = annotation if self.is_settled else readable(annotation)
        #: Plain JSON that fits it stays as it is, or is changed on purpose; a union may turn a list into a set.
        self.keeps_plain = self.kind is annotation or self.kind is Any

    def read(self, stored: Any) -> Any:
        """Return decoded JSON as this type; raise an exception where it does not fit."""
        return stored if self.kind is Any else convert(stored, self.kind)

    def change(self, value: Any, found: Any, place: str) -> str | None:
        """Return what is lost where *value* comes back as *found*; None when it is the same, or what the annotation asks for."""
        if is_same(value, found):
            return None
        wanted = as_annotated(value, self.kind)
        return None if is_same(wanted, found) else difference(wanted, found, place)

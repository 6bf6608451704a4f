"""The type of an argument or a result, and the check that a value survives being stored as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.tasks.annotations import as_annotated, convert, is_settled, readable
from holdfast.tasks.round_trip import difference, is_same


class ValueType:
    """The type that an annotation stands for."""

    def __init__(self, annotation: Any) -> None:
        #: Every value that fits comes back unchanged, so nothing has to be compared.
        self.is_settled = is_settled(annotation)
        self.kind = annotation if self.is_settled else readable(annotation)
        #: Plain JSON that fits stays as it is, or is changed on purpose. (A union may turn a list into a
        #: set.)
        self.keeps_plain = self.kind is annotation or self.kind is Any

    def read(self, stored: Any) -> Any:
        """Convert decoded JSON to this type. Raises an exception if it does not fit."""
        return stored if self.kind is Any else convert(stored, self.kind)

    def change(self, value: Any, found: Any, place: str) -> str | None:
        """Describe what is lost when *value* comes back as *found*.

        Return None if they are the same, or if *found* is what the annotation asks for.
        """
        if is_same(value, found):
            return None
        wanted = as_annotated(value, self.kind)
        return None if is_same(wanted, found) else difference(wanted, found, place)

"""The tables of a policy file: each value is asked for by its key, and what nobody asked for is an error.

Every error is one line: the file and the line in it, the way to the key, and what is allowed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.domain.suggest import suggest
from holdfast.engine.policies.line_numbers import Path, line_of
from holdfast.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Where policies come from: a file, and on which line of it each key is."""

    file: str = "policies"
    lines: Mapping[Path, int] = field(default_factory=dict)

    def wrong(self, path: Path, why: str) -> UsageError:
        line = line_of(self.lines, path)
        place = self.file if line is None else f"{self.file}:{line}"
        return UsageError(f"{place}: {_dotted(path)}: {why}" if path else f"{place}: {why}")


class Table:
    """One table; `end` refuses every key that was not asked for."""

    def __init__(self, source: PolicySource, path: Path, values: Mapping[str, Any]) -> None:
        self.source, self.path, self._values = source, path, values
        self._asked: dict[str, None] = {}

    @classmethod
    def of(cls, source: PolicySource, path: Path, value: object) -> Table:
        if not isinstance(value, dict):
            raise source.wrong(path, f"it is {_shown(value)}; it is a table: [{_dotted(path)}] or {{…}}")
        return cls(source, path, value)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def read(self, key: str, reader: Callable[[Any], T]) -> T | None:
        """The value of *key* as *reader* understands it, or None when it is not there."""
        self._asked[key] = None
        if key not in self._values:
            return None
        try:
            return reader(self._values[key])
        except UsageError as error:
            raise self.wrong(key, str(error)) from None

    def table(self, key: str) -> Table | None:
        self._asked[key] = None
        if key not in self._values:
            return None
        return Table.of(self.source, (*self.path, key), self._values[key])

    def tables(self, key: str) -> Iterator[Table]:
        """The tables of an array of them."""
        for place, value in enumerate(self.read(key, listed) or ()):
            yield Table.of(self.source, (*self.path, key, place), value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def named(self) -> Iterator[tuple[str, Table]]:
        """The tables in this one, whatever their names."""
        for key, value in self._values.items():
            self._asked[key] = None
            yield key, Table.of(self.source, (*self.path, key), value)

    def build(self, make: Callable[..., T]) -> T:
        """Call *make* with the keys of this table as its keywords."""
        for name in inspect.signature(make).parameters:
            self._asked[name] = None
        self.end()
        try:
            return make(**self._values)
        except UsageError as error:
            # Our own complaints begin with the name of what is wrong.
            words = str(error).replace(":", " ").split()
            raise self.wrong(words[0] if words[0] in self._values else None, str(error)) from None

    def end(self) -> None:
        for key in self._values:
            if key not in self._asked:
                raise self.wrong(key, f"there is no such key here; {suggest(key, self._asked)}")

    def wrong(self, key: str | None, why: str) -> UsageError:
        return self.source.wrong(self.path if key is None else (*self.path, key), why)


def listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise UsageError(f"it is {_shown(value)}; it is a list: […]")
    return value


def words(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f'it is {_shown(value)}; it is a list of names: ["…", "…"]')
    return value


def _shown(value: object) -> str:
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value!r:.60}"


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part.replace("-", "").replace("_", "").isalnum()
            text += ("." if text else "") + (part if bare else f'"{part}"')
    return text

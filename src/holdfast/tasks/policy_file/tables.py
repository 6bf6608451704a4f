"""The tables of a policy file: values are read by key, and a key that was not read is an error.

Every error is one line: the file and line, the path of the key, and what is allowed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.tasks.policy_file.line_numbers import Path, line_of
from holdfast.values.suggest import suggest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicySource:
    """The source of policies: a file, and the line of each key in it."""

    file: str = "policies"
    lines: Mapping[Path, int] = field(default_factory=dict)

    def wrong(self, path: Path, why: str) -> UsageError:
        """Return the error for the value at *path*."""
        line = line_of(self.lines, path)
        place = self.file if line is None else f"{self.file}:{line}"
        return UsageError(f"{place}: {_dotted(path)}: {why}" if path else f"{place}: {why}")


class Table:
    """One table of a policy file. Call `end` after the last key was read."""

    def __init__(self, source: PolicySource, path: Path, values: Mapping[str, Any]) -> None:
        self.source, self.path, self._values = source, path, values
        self._read_keys: dict[str, None] = {}

    @classmethod
    def of(cls, source: PolicySource, path: Path, value: object) -> Table:
        if not isinstance(value, dict):
            raise source.wrong(path, f"it is {_shown(value)}; it is a table: [{_dotted(path)}] or {{…}}")
        return cls(source, path, value)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def read(self, key: str, reader: Callable[[Any], T]) -> T | None:
        """Return the value of *key* converted by *reader*, or None if the key is missing.

        Raises:
            UsageError: *reader* refused the value.
        """
        self._read_keys[key] = None
        if key not in self._values:
            return None
        try:
            return reader(self._values[key])
        except UsageError as error:
            raise self.wrong(key, str(error)) from None

    def table(self, key: str) -> Table | None:
        """Return the table under *key*, or None if the key is missing."""
        self._read_keys[key] = None
        if key not in self._values:
            return None
        return Table.of(self.source, (*self.path, key), self._values[key])

    def tables(self, key: str) -> Iterator[Table]:
        """Yield the tables of the array under *key*."""
        for place, value in enumerate(self.read(key, listed) or ()):
            yield Table.of(self.source, (*self.path, key, place), value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def named(self) -> Iterator[tuple[str, Table]]:
        """Yield the name and table of every entry."""
        for key, value in self._values.items():
            self._read_keys[key] = None
            yield key, Table.of(self.source, (*self.path, key), value)

    def build(self, make: Callable[..., T]) -> T:
        """Call *make* with the entries of this table as keyword arguments, and return its result.

        Raises:
            UsageError: A key is not an argument of *make*, or *make* refused a value.
        """
        for name in inspect.signature(make).parameters:
            self._read_keys[name] = None
        self.end()
        try:
            return make(**self._values)
        except UsageError as error:
            # Such an error begins with the name of the argument.
            words = str(error).replace(":", " ").split()
            raise self.wrong(words[0] if words[0] in self._values else None, str(error)) from None

    def end(self) -> None:
        """Raise `UsageError` if the table has a key that was not read."""
        for key in self._values:
            if key not in self._read_keys:
                raise self.wrong(key, f"there is no such key here; {suggest(key, self._read_keys)}")

    def wrong(self, key: str | None, why: str) -> UsageError:
        """Return the error for the value of *key*, or for the table itself if that is None."""
        return self.source.wrong(self.path if key is None else (*self.path, key), why)


def listed(value: object) -> list[Any]:
    """Return *value*, or raise `UsageError` if it is not a list."""
    if not isinstance(value, list):
        raise UsageError(f"it is {_shown(value)}; it is a list: […]")
    return value


def words(value: object) -> list[str]:
    """Return *value*, or raise `UsageError` if it is not a list of texts."""
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

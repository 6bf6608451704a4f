"""The tables of a policy file: values are read by key, and a key that was not read is an error.

Every error is one line: the file and line, the path of the key, and what is allowed.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.tasks.policy_file.line_numbers import Path, line_of
from holdfast.values.suggest import suggest

T = TypeVar("T")


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class PolicySource:
    """The source of policies: a file with the line of each key in it, and the keys that are overridden."""

    file: str = "policies"
    lines: Mapping[Path, int] = field(default_factory=dict)
    overrides: Mapping[Path, str] = field(default_factory=dict)  #: the keys, and who has overridden each

    def place(self, path: Path) -> str:
        """Return where the value at *path* is set: "override by ann", or the file with the line."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return f"override by {self.overrides[path[:length]]}"
        line = line_of(self.lines, path)
        return self.file if line is None else f"{self.file}:{line}"

    def wrong(self, path: Path, why: str) -> UsageError:
        """Return the error for the value at *path*."""
        place = self.place(path)
        return UsageError(f"{place}: {dotted(path)}: {why}" if path else f"{place}: {why}")

    def wrong_argument(self, path: Path, arguments: Collection[str], error: UsageError) -> UsageError:
        """Return the error for the table at *path* whose keys are *arguments*, which *error* refused.

        Such an error begins with the name of the argument.
        """
        word = str(error).replace(":", " ").split()[0]
        return self.wrong((*path, word) if word in arguments else path, str(error))


class Table:
    """One table of a policy file. Call `end` after the last key was read."""

    def __init__(self, source: PolicySource, path: Path, values: Mapping[str, Any]) -> None:
        self.source, self.path, self._values = source, path, values
        self._read_keys: dict[str, None] = {}

    @classmethod
    def of(cls, source: PolicySource, path: Path, value: object) -> Table:
        if not isinstance(value, dict):
            raise source.wrong(path, f"it is {_shown(value)}; it is a table: [{dotted(path)}] or {{…}}")
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

    @property
    def values(self) -> Mapping[str, Any]:
        """The entries as they are in the file."""
        return self._values

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
            raise self.source.wrong_argument(self.path, self._values, error) from None

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


def dotted(path: Path) -> str:
    """Return *path* as it is written in a policy file: `tasks."my task".max_attempts`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _BARE_KEY.fullmatch(part) else toml_text(part)
            text += ("." if text else "") + key
    return text


def toml_text(text: str) -> str:
    """Return *text* as it is written in TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

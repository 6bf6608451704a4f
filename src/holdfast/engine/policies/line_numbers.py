"""On which line of a TOML text a key is written: the parser does not say, and an error without it is a search.

The text is known to be valid, so this only has to find its way: past strings, through arrays and inline tables.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

#: The way to a value: keys, and places in arrays.
Path = tuple[str | int, ...]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:[^"\\]|\\.)*"' r"|'[^']*'", re.DOTALL
)
_BARE = re.compile(r"[^,\]}#\n]*")


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """The line of *path*, or of the nearest thing around it that is written down."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def line_numbers_of(text: str) -> dict[Path, int]:
    """The line, counted from 1, on which each key and each part of an array is first written."""
    return _Walk(text).lines


class _Walk:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._tables: dict[Path, int] = {}  #: arrays of tables, and how many they have so far
        self.lines: dict[Path, int] = {}
        here: Path = ()
        self._space()
        while self._at < len(text):
            if self._take("["):
                here = self._header()
            else:
                self._pair(here)
            self._space()

    # -- statements ---------------------------------------------------------------------------------------------------
    def _header(self) -> Path:
        many = self._take("[")
        keys = self._keys()
        self._at += 2 if many else 1
        path: Path = ()
        for place, key in enumerate(keys):
            path = (*path, key)
            self._note(path)
            if many and place == len(keys) - 1:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._note(path)
        return path

    def _pair(self, here: Path) -> None:
        for key in self._keys():
            here = (*here, key)
            self._note(here)
        self._space()
        self._at += 1  # the equals sign
        self._value(here)

    # -- values -------------------------------------------------------------------------------------------------------
    def _value(self, here: Path) -> None:
        self._space()
        if self._take("["):
            self._array(here)
        elif self._take("{"):
            while not self._ends("}"):
                self._pair(here)
        elif (string := _STRING.match(self._text, self._at)) is not None:
            self._at = string.end()
        else:
            self._at = self._match(_BARE).end()

    def _array(self, here: Path) -> None:
        place = 0
        while not self._ends("]"):
            self._note((*here, place))
            self._value((*here, place))
            place += 1

    def _ends(self, bracket: str) -> bool:
        """Past the space and a comma; whether the *bracket* that closes follows."""
        self._space()
        self._take(",")
        self._space()
        return self._take(bracket)

    # -- small steps --------------------------------------------------------------------------------------------------
    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._space()
            word = self._match(_KEY)
            self._at = word.end()
            # The parser itself says what a quoted key stands for.
            keys.append(next(iter(tomllib.loads(f"{word[0]} = 0"))) if word[0][0] in "\"'" else word[0])
            self._space()
            if not self._take("."):
                return keys

    def _note(self, path: Path) -> None:
        self.lines.setdefault(path, self._text.count("\n", 0, self._at) + 1)

    def _space(self) -> None:
        self._at = self._match(_SPACE).end()

    def _take(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"not the TOML it was said to be, at {self._at}")
        return found

"""Find the line of each key in a TOML text, for error messages: the parser does not report lines.

The text is known to be valid, so this only has to skip strings and walk through arrays and inline tables.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

#: The path to a value: keys, and positions in arrays.
Path = tuple[str | int, ...]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'""")
#: Keys with dots between them.
DOTTED_KEY = re.compile(rf"(?:{_KEY.pattern})(?: *\. *(?:{_KEY.pattern}))*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:[^"\\]|\\.)*"' r"|'[^']*'", re.DOTALL
)
_BARE = re.compile(r"[^,\]}#\n]*")


def line_of(lines: Mapping[Path, int], path: Path) -> int | None:
    """Return the line of *path*, or of the nearest enclosing key that has one."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def line_numbers_of(text: str) -> dict[Path, int]:
    """Return the line, counted from 1, on which each key and each element of an array first occurs."""
    return _Walk(text).lines


class _Walk:
    """One pass over a valid TOML text that fills `lines`."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._tables: dict[Path, int] = {}  #: the number of tables so far in each array of tables
        self.lines: dict[Path, int] = {}
        path: Path = ()
        self._space()
        while self._at < len(text):
            if self._take("["):
                path = self._header()
            else:
                self._pair(path)
            self._space()

    # -- statements ---------------------------------------------------------------------------------------------------
    def _header(self) -> Path:
        is_array = self._take("[")
        keys = self._keys()
        self._at += 2 if is_array else 1
        path: Path = ()
        for place, key in enumerate(keys):
            path = (*path, key)
            self._note(path)
            if is_array and place == len(keys) - 1:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._note(path)
        return path

    def _pair(self, path: Path) -> None:
        for key in self._keys():
            path = (*path, key)
            self._note(path)
        self._space()
        self._at += 1  # the equals sign
        self._value(path)

    # -- values -------------------------------------------------------------------------------------------------------
    def _value(self, path: Path) -> None:
        self._space()
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            while not self._ends("}"):
                self._pair(path)
        elif (string := _STRING.match(self._text, self._at)) is not None:
            self._at = string.end()
        else:
            self._at = self._match(_BARE).end()

    def _array(self, path: Path) -> None:
        place = 0
        while not self._ends("]"):
            self._note((*path, place))
            self._value((*path, place))
            place += 1

    def _ends(self, bracket: str) -> bool:
        """Skip space and a comma. Return whether the closing *bracket* follows, and skip it too."""
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
            # The parser decodes a quoted key.
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
        match = pattern.match(self._text, self._at)
        if match is None:
            raise ValueError(f"the text is not valid TOML at {self._at}")
        return match

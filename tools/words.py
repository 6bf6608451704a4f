"""Find words to avoid: `python -m tools.words` prints the places of refused words, and counts others.

`REFUSED` words must not occur at all. `COUNTED` words must not occur more often than listed: lower a number
here when you have rewritten some of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "systems", "docs", "web/src")
FILES = ("README.md", "ARCHITECTURE.md")
KINDS = (".py", ".sql", ".md", ".html", ".js", ".ts", ".tsx", ".css", ".toml", ".json", ".yml")
#: Records of the past stay as they were written, and what is built is not written by us alone.
LEFT_OUT = ("docs/adr/", "docs/explanation/evidence/", "src/holdfast/server/dashboard_files/")

#: The words, and what to write instead.
REFUSED = {
    r"so many": "a number, `at most N`, or the name of the setting",
    r"so-manieth": "the n-th",
    r"strikes?": "delete, or discard a dead letter",
    r"another life": "redrive",
    r"keeps?\s+house": "run maintenance",
    r"housework": "maintenance",
    r"chores?": "maintenance, or maintenance tasks",
    r"whoever": "the caller, the worker, the process, any client",
    r"seldom": "rarely",
}

#: How often each of these words may occur.
COUNTED = {"told": 6, "nobody": 2, "somebody": 2}

_REFUSED = re.compile(rf"\b(?:{'|'.join(REFUSED)})\b", re.IGNORECASE)
_COUNTED = re.compile(rf"\b(?:{'|'.join(COUNTED)})\b", re.IGNORECASE)


class Place(NamedTuple):
    """A refused word in a text: where it is, and its line."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def texts(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file whose words are checked."""
    paths = [root / name for name in FILES]
    paths += sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in KINDS)
    for path in paths:
        name = path.relative_to(root).as_posix()
        if path.is_file() and not name.startswith(LEFT_OUT):
            yield name, path.read_text(encoding="utf-8")


def refused(found: Iterable[tuple[str, str]]) -> list[Place]:
    """Return each place at which one of these texts has a refused word."""
    places: list[Place] = []
    for path, text in found:
        lines = text.splitlines()
        for word in _REFUSED.finditer(text):
            line = text.count("\n", 0, word.start())
            places.append(Place(path, line + 1, lines[line].strip()))
    return places


def counted(found: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return how often each word of `COUNTED` occurs in these texts."""
    return Counter(word.group().lower() for _, text in found for word in _COUNTED.finditer(text))


if __name__ == "__main__":
    every = list(texts())
    for place in refused(every):
        print(place)
    for word, number in sorted(counted(every).items()):
        print(f"{word}: {number} (allowed: {COUNTED[word]})")

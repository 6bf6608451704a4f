"""What is on a page: blocks of lines of words, each with its box.

Boxes are in points from the upper left corner of the page as it is shown, so a page that is turned reads like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Font(NamedTuple):
    name: str
    size: float  #: in points, as shown
    bold: bool
    italic: bool


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def joined(self, other: Box) -> Box:
        return Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )


class Word(NamedTuple):
    text: str
    box: Box
    font: Font
    broken: bool = False  #: it ends with a hyphen that stands there because the line ends


@dataclass(slots=True)
class Line:
    box: Box
    words: list[Word]

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def font(self) -> Font:
        """That of most of its letters."""
        if len(self.words) == 1:
            return self.words[0].font
        letters: dict[Font, int] = {}
        for word in self.words:
            letters[word.font] = letters.get(word.font, 0) + len(word.text)
        return max(letters, key=lambda font: letters[font])


@dataclass(slots=True)
class Block:
    box: Box
    lines: list[Line]


@dataclass(slots=True)
class Page:
    number: int  #: from 1
    width: float
    height: float
    blocks: list[Block] = field(default_factory=list)  #: in the order they are read

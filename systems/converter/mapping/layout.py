"""The layout of a page: blocks of lines of words, each with its box.

Boxes are in points from the upper left corner of the page as it is displayed, so a rotated page reads like
any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Font(NamedTuple):
    """A font as it is used on a page."""

    name: str
    size: float  #: in points, as displayed
    bold: bool
    italic: bool


class Box(NamedTuple):
    """A rectangle on a page."""

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
        """Return the smallest box around this one and *other*."""
        return Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )


class Word(NamedTuple):
    """A word, or the part of it before a hyphen at the end of a line."""

    text: str
    box: Box
    font: Font
    broken: bool = False  #: it ends with a hyphen that only the end of the line put there


@dataclass(slots=True)
class Line:
    """Words beside each other."""

    box: Box
    words: list[Word]

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def font(self) -> Font:
        """The font of most of its letters."""
        if len(self.words) == 1:
            return self.words[0].font
        letters: dict[Font, int] = {}
        for word in self.words:
            letters[word.font] = letters.get(word.font, 0) + len(word.text)
        return max(letters, key=lambda font: letters[font])


@dataclass(slots=True)
class Block:
    """Lines below each other, such as a paragraph or a heading."""

    box: Box
    lines: list[Line]


@dataclass(slots=True)
class Page:
    """A page and its text."""

    number: int  #: from 1
    width: float
    height: float
    blocks: list[Block] = field(default_factory=list)  #: in reading order

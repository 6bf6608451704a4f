"""Recognize the parts of an article by its layout: title, authors, abstract, sections and references.

The rules are guesses that hold for most articles. The title is the largest text of the first page. Headings
are larger or bolder than the rest, or numbered. References follow a heading with such a name. Anything else
becomes a paragraph. Only running heads and page numbers are dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from systems.converter.mapping.layout import Block, Font, Line, Page
from systems.converter.mapping.metadata import Metadata, split_names

_NUMBERED = re.compile(r"^(\d{1,2}(?:\.\d{1,2}){0,3})\.?\s+\S")
_ABSTRACT = re.compile(r"^(abstract|summary|zusammenfassung|résumé)\b[\s.:—–-]*", re.IGNORECASE)
_REFERENCES = re.compile(
    r"^(?:\d{1,2}\.?\s+)?(references|bibliography|literature cited|literatur|literaturverzeichnis|références)$",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"^(\[[^\]\s]{1,12}\]|\d{1,3}\.)\s*")
_NAME = re.compile(r"^[^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){1,4}$")
_MARKS = re.compile(r"(?<![\d*†‡§¶,])[\d*†‡§¶,]++$")
#: The share of a page's height at its upper and lower edge that running heads and page numbers occupy.
_EDGE = 0.08


@dataclass(slots=True)
class Section:
    """A heading with its paragraphs."""

    title: str
    level: int
    paragraphs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Reference:
    """An entry of the list of references."""

    label: str
    text: str


@dataclass(slots=True)
class Article:
    """The recognized parts of an article."""

    title: str = ""
    authors: tuple[str, ...] = ()
    abstract: list[str] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)  #: paragraphs before the first heading
    sections: list[Section] = field(default_factory=list)
    references_title: str = ""
    references: list[Reference] = field(default_factory=list)


def read_article(pages: Iterable[Page], metadata: Metadata) -> Article:
    """Return the article on *pages*. *metadata* supplies a title and authors that the pages do not show."""
    blocks = _without_edges(list(pages))
    body = _body_font(blocks)
    article = Article(title=metadata.title, authors=metadata.authors)
    title, rest = _take_title([block for page, block in blocks if page == 1], body)
    later = [block for page, block in blocks if page != 1]
    if title:
        article.title = title
        named, rest = _take_authors(rest, body)
        article.authors = named or article.authors
    _sort_blocks(article, [*rest, *later], body)
    return article


def _without_edges(pages: Sequence[Page]) -> list[tuple[int, Block]]:
    """Return all blocks with their page numbers, without running heads and page numbers.

    Those are single lines at an edge that recur on several pages or are only a number.
    """
    counts: Counter[str] = Counter()
    for page in pages:
        counts.update({_shape(block) for block in page.blocks if _at_edge(page, block)})
    recurring = {shape for shape, times in counts.items() if times > 1}
    return [
        (page.number, block)
        for page in pages
        for block in page.blocks
        if not (_at_edge(page, block) and (_shape(block) in recurring or _shape(block) == "#"))
    ]


def _at_edge(page: Page, block: Block) -> bool:
    if len(block.lines) > 1:
        return False
    return block.box.bottom < _EDGE * page.height or block.box.top > (1 - _EDGE) * page.height


def _shape(block: Block) -> str:
    return re.sub(r"\d+", "#", block.lines[0].text)


def _body_font(blocks: Sequence[tuple[int, Block]]) -> Font:
    letters: Counter[Font] = Counter()
    for _, block in blocks:
        for line in block.lines:
            for word in line.words:
                letters[word.font] += len(word.text)
    if not letters:
        return Font("unknown", 10.0, False, False)
    return max(letters, key=lambda font: (letters[font], font))


def _take_title(blocks: list[Block], body: Font) -> tuple[str, list[Block]]:
    """Return the largest text of the first page, and the blocks without it.

    Return "" if no text stands out.
    """
    largest = max((block.lines[0].font.size for block in blocks), default=0.0)
    if largest <= 1.15 * body.size:
        return "", blocks
    for place, block in enumerate(blocks):
        if block.lines[0].font.size == largest:
            if _REFERENCES.match(_joined(block.lines)) or _ABSTRACT.match(block.lines[0].text):
                break
            return _joined(block.lines), [*blocks[:place], *blocks[place + 1 :]]
    return "", blocks


def _take_authors(blocks: list[Block], body: Font) -> tuple[tuple[str, ...], list[Block]]:
    """Return the names below the title, and the blocks without them.

    They are the first of the next four blocks in which every part looks like a name.
    """
    for place, block in enumerate(blocks[:4]):
        text = _joined(block.lines)
        # Names may be larger than the rest, as headings are, but they are not numbered and rarely bold.
        if _ABSTRACT.match(text) or (block.lines[0].font.bold and not body.bold) or _NUMBERED.match(text):
            break
        names = tuple(_MARKS.sub("", name).strip() for name in split_names(text))
        if names and all(_NAME.match(name) and not name.islower() for name in names):
            return names, [*blocks[:place], *blocks[place + 1 :]]
    return (), blocks


def _sort_blocks(article: Article, blocks: Sequence[Block], body: Font) -> None:
    """Add the blocks after the title and the authors to the abstract, the sections and the references."""
    target = article.opening
    flowing = False  # whether the last paragraph may continue in the next column or page
    for block in blocks:
        text = _joined(block.lines)
        level = _level(block.lines[0], body) if len(text) <= 200 else 0
        if _REFERENCES.match(text):
            article.references_title, target, flowing = text, [], False
            continue
        if article.references_title:
            _add_references(article, block)
            continue
        heading = _ABSTRACT.match(text)
        if heading and not article.sections and not article.abstract:
            target, flowing = article.abstract, False
            if text := text[heading.end() :].strip():
                target.append(text)
            continue
        if level:
            section = Section(text, level)
            article.sections.append(section)
            target, flowing = section.paragraphs, False
            continue
        for paragraph in _paragraphs(block):
            if flowing and target and not _is_ended(target[-1]) and paragraph[:1].islower():
                target[-1] = _glued(target[-1], paragraph)
            else:
                target.append(paragraph)
            flowing = True


def _level(line: Line, body: Font) -> int:
    """Return the level of a heading, from 1, or 0 if the line is not a heading."""
    text, font = line.text, line.font
    letters = sum(letter.isalpha() for letter in text)
    if letters < 2 or len(text) > 150 or (_REFERENCE.match(text) and text.startswith("[")):
        return 0
    stands_out = font.size >= 1.1 * body.size or (font.bold and not body.bold)
    numbered = _NUMBERED.match(text)
    if not stands_out or (text.endswith((".", ",", ";")) and not numbered):
        return 0
    return numbered[1].count(".") + 1 if numbered else 1


def _paragraphs(block: Block) -> list[str]:
    """Return the paragraphs of a block. An indented line after the end of a sentence begins a new one."""
    parts: list[list[Line]] = []
    for line in block.lines:
        indented = line.box.left - block.box.left > 0.8 * max(line.font.size, 1.0)
        if not parts or (indented and _is_ended(parts[-1][-1].text)):
            parts.append([line])
        else:
            parts[-1].append(line)
    return [text for part in parts if (text := _joined(part))]


def _add_references(article: Article, block: Block) -> None:
    """Add the references of a block.

    Each begins with a label, or is set further left than its other lines.
    """
    for line in block.lines:
        text = line.text
        label = _REFERENCE.match(text)
        references = article.references
        hanging = line.box.left - block.box.left < 0.5 * max(line.font.size, 1.0)
        labelled = bool(references and references[-1].label)
        if label:
            references.append(Reference(label[1], text[label.end() :]))
        elif not references or (not labelled and hanging and _is_ended(references[-1].text)):
            references.append(Reference("", text))
        else:
            references[-1].text = _glued(references[-1].text, text)


def _joined(lines: Sequence[Line]) -> str:
    """Return the text of *lines*. Words that were hyphenated at the end of a line are joined."""
    text = ""
    for line in lines:
        text = _glued(text, line.text)
    return text


def _glued(before: str, after: str) -> str:
    if not before:
        return after
    if before.endswith("-") and before[-2:-1].isalpha() and after[:1].islower():
        return before[:-1] + after
    return f"{before} {after}"


def _is_ended(text: str) -> bool:
    return text.rstrip("”\"'’)]").endswith((".", "!", "?", ":"))

"""Words become lines, lines become blocks, and blocks are put in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systems.converter.mapping.layout import Block, Box, Line, Word

#: A gap wider than this many font sizes is one between columns or cells, not between words.
_WIDEST_SPACE = 1.6
#: Lines of one block are no further apart than this many line heights.
_LEADING = 0.75
#: The narrowest gap between columns, in points.
_GUTTER = 6.0
#: A page with more blocks than this is not looked through for columns: that takes time by their square.
_MOST_BLOCKS = 400


#: From a box to where it begins and ends along one side.
_Extent = Callable[[Box], tuple[float, float]]


def blocks_of(words: Sequence[Word]) -> list[Block]:
    return in_reading_order(_stack(_join(words)))


def _join(words: Sequence[Word]) -> list[Line]:
    """Lines of words that follow each other in the file and stand beside each other on the page."""
    lines: list[Line] = []
    for word in words:
        last = lines[-1] if lines else None
        if last is not None and _continues(last, word):
            last.words.append(word)
            last.box = last.box.joined(word.box)
        else:
            lines.append(Line(word.box, [word]))
    return lines


def _continues(line: Line, word: Word) -> bool:
    before = line.words[-1]
    if before.broken:
        return False
    overlap = min(before.box.bottom, word.box.bottom) - max(before.box.top, word.box.top)
    if overlap < 0.4 * min(before.box.height, word.box.height):
        return False
    size = max(before.font.size, word.font.size, 1.0)
    gap = word.box.left - before.box.right
    return -0.6 * size <= gap <= _WIDEST_SPACE * size


def _stack(lines: Sequence[Line]) -> list[Block]:
    """Blocks of lines that follow each other in the file and stand close below each other in the same hand."""
    blocks: list[Block] = []
    for line in lines:
        last = blocks[-1] if blocks else None
        if last is not None and _belongs(last, line):
            last.lines.append(line)
            last.box = last.box.joined(line.box)
        else:
            blocks.append(Block(line.box, [line]))
    return blocks


def _belongs(block: Block, line: Line) -> bool:
    before = block.lines[-1]
    height = max(before.box.height, line.box.height, 1.0)
    gap = line.box.top - before.box.bottom
    if not -0.5 * height <= gap <= _LEADING * height or line.box.top <= before.box.top:
        return False
    if min(block.box.right, line.box.right) <= max(block.box.left, line.box.left):
        return False
    mine, theirs = line.font, before.font
    return mine.bold == theirs.bold and abs(mine.size - theirs.size) <= 0.12 * max(mine.size, theirs.size)


def in_reading_order(blocks: Sequence[Block]) -> list[Block]:
    """Top to bottom, but column by column where the page has columns, and across it where something spans them."""
    if len(blocks) > _MOST_BLOCKS:
        return sorted(blocks, key=_place)
    return _ordered(list(blocks), depth=0)


def _place(block: Block) -> tuple[float, float]:
    return block.box.top, block.box.left


def _ordered(blocks: list[Block], depth: int) -> list[Block]:
    if len(blocks) < 2 or depth > 8:
        return sorted(blocks, key=_place)
    columns = _columns(blocks)
    if len(columns) > 1:
        return [block for column in columns for block in _ordered(column, depth + 1)]
    strips = _strips(blocks)
    if len(strips) == 1:
        return sorted(blocks, key=_place)
    read: list[Block] = []
    for band in _bands(strips):
        read += _ordered(band, depth + 1) if len(band) < len(blocks) else sorted(band, key=_place)
    return read


def _columns(blocks: list[Block]) -> list[list[Block]]:
    """The blocks split at each gap that goes from top to bottom, from left to right."""
    return _split(blocks, lambda box: (box.left, box.right), _GUTTER)


def _strips(blocks: list[Block]) -> list[list[Block]]:
    """The blocks split at each gap that goes from left to right, from top to bottom."""
    return _split(blocks, lambda box: (box.top, box.bottom), 0.0)


def _split(blocks: list[Block], extent: _Extent, least: float) -> list[list[Block]]:
    parts: list[list[Block]] = []
    reach = 0.0
    for block in sorted(blocks, key=lambda block: (extent(block.box), _place(block))):
        start, end = extent(block.box)
        if parts and start < reach + least:
            parts[-1].append(block)
            reach = max(reach, end)
        else:
            parts.append([block])
            reach = end
    return parts


def _bands(strips: list[list[Block]]) -> list[list[Block]]:
    """Strips that have their columns in common are one band: its columns are read down to its end."""
    bands: list[list[Block]] = []
    divided = False
    for strip in strips:
        together = [*bands[-1], *strip] if bands else strip
        if bands and divided and len(_columns(together)) > 1:
            bands[-1] = together
        else:
            bands.append(strip)
            divided = len(_columns(strip)) > 1
    return bands

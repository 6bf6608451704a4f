"""Group words into lines and lines into blocks, and sort the blocks into reading order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systems.converter.mapping.layout import Block, Box, Line, Word

#: The widest gap between two words, in font sizes. A wider one separates columns or cells.
_WIDEST_SPACE = 1.6
#: The widest gap between two lines of a block, in line heights.
_LEADING = 0.75
#: The narrowest gap between columns, in points.
_GUTTER = 6.0
#: A page with more blocks than this is not searched for columns, which takes quadratic time.
_MAX_BLOCKS = 400


#: Takes a box and returns its start and end along one axis.
_Extent = Callable[[Box], tuple[float, float]]


def blocks_of(words: Sequence[Word]) -> list[Block]:
    """Return the words of a page as blocks, in reading order."""
    return in_reading_order(_stack(_join(words)))


def _join(words: Sequence[Word]) -> list[Line]:
    """Return lines of words that are adjacent both in the file and on the page."""
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
    """Return blocks of lines that are adjacent in the file, close on the page, and similar in font."""
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
    """Return the blocks from top to bottom, and column by column where the page has columns."""
    if len(blocks) > _MAX_BLOCKS:
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
    ordered: list[Block] = []
    for band in _bands(strips):
        ordered += _ordered(band, depth + 1) if len(band) < len(blocks) else sorted(band, key=_place)
    return ordered


def _columns(blocks: list[Block]) -> list[list[Block]]:
    """Split the blocks at vertical gaps, and return the parts from left to right."""
    return _split(blocks, lambda box: (box.left, box.right), _GUTTER)


def _strips(blocks: list[Block]) -> list[list[Block]]:
    """Split the blocks at horizontal gaps, and return the parts from top to bottom."""
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
    """Merge adjacent strips that share their columns into bands.

    Each column is read down to the end of its band.
    """
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

"""Read the pages of a PDF: PDFium reports the place of each letter, and this module joins letters into words.

It runs in a child under limits, because the file may be hostile. Every error in the file raises `Refused`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2
from pypdfium2 import raw

from systems.converter import refusals
from systems.converter.content import is_pdf, is_whole
from systems.converter.mapping.grouping import blocks_of
from systems.converter.mapping.layout import Box, Font, Page, Word
from systems.converter.refusals import Refused

MAX_PAGES = 2_000
#: The format's limit for a side of a page, in points.
MAX_SIDE = 14_400.0
#: Coordinates are clamped to this, since a broken matrix may place letters anywhere.
_FAR = 10 * MAX_SIDE

#: PDFium's code for a hyphen at the end of a line.
_BREAK = 0x02
_SPACES = frozenset(
    [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F, 0x3000]
)
_LIGATURES = {
    0xFB00: "ff",
    0xFB01: "fi",
    0xFB02: "fl",
    0xFB03: "ffi",
    0xFB04: "ffl",
    0xFB05: "st",
    0xFB06: "st",
}

# Bits of a font descriptor's flags.
_ITALIC, _FORCE_BOLD = 1 << 6, 1 << 18


def open_pdf(data: bytes) -> pypdfium2.PdfDocument:
    """Return the document in *data*. Raise `Refused` if it cannot be converted."""
    if not is_pdf(data[:1100]):
        raise Refused(refusals.NOT_PDF)
    if not is_whole(data[-1100:]):
        raise Refused(refusals.CUT_OFF)
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        locked = error.err_code in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY)
        raise Refused(refusals.ENCRYPTED if locked else refusals.BROKEN) from None
    pages = len(document)
    if pages < 1:
        raise Refused(refusals.NO_PAGES)
    if pages > MAX_PAGES:
        raise Refused(refusals.too_many_pages(pages, MAX_PAGES))
    return document


def read_pages(document: pypdfium2.PdfDocument) -> Iterator[Page]:
    """Yield the pages, one at a time. Raise `Refused` at the end if none of them had text."""
    has_text = False
    for index in range(len(document)):
        page = _read_page(document, index)
        has_text = has_text or bool(page.blocks)
        yield page
    if not has_text:
        raise Refused(refusals.NO_TEXT)


def _read_page(document: pypdfium2.PdfDocument, index: int) -> Page:
    number = index + 1
    try:
        page = document[index]
    except pypdfium2.PdfiumError:
        raise Refused(refusals.unreadable_page(number)) from None
    try:
        width, height = page.get_size()
        if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
            raise Refused(refusals.page_too_large(number, width, height, MAX_SIDE))
        text = page.get_textpage()
        try:
            words = _read_words(text.raw, _rotation(page))
        finally:
            text.close()
    except pypdfium2.PdfiumError:
        raise Refused(refusals.unreadable_page(number)) from None
    finally:
        page.close()
    return Page(number, width, height, blocks_of(words))


#: Takes left, bottom, right and top in the page's own coordinates, and returns the box as displayed.
Rotate = Callable[[float, float, float, float], Box]


def _rotation(page: Any) -> Rotate:
    """Return the function that turns coordinates of *page* into displayed boxes."""
    bounds = raw.FS_RECTF()
    raw.FPDF_GetPageBoundingBox(page.raw, ctypes.byref(bounds))
    west, south, east, north = bounds.left, bounds.bottom, bounds.right, bounds.top

    def rotate(left: float, bottom: float, right: float, top: float) -> Box:
        match rotation:
            case 1:
                sides = bottom - south, left - west, top - south, right - west
            case 2:
                sides = east - right, bottom - south, east - left, top - south
            case 3:
                sides = north - top, east - right, north - bottom, east - left
            case _:
                sides = left - west, north - top, right - west, north - bottom
        return Box(*(_bounded(side) for side in sides))

    rotation = raw.FPDFPage_GetRotation(page.raw)
    return rotate


def _bounded(value: float) -> float:
    if not math.isfinite(value):
        return 0.0
    return round(min(max(value, -_FAR), _FAR), 2)


def _read_words(text: Any, rotate: Rotate) -> list[Word]:
    """Return the words in the order of the file."""
    # This loop handles every letter, and takes most of a conversion's time.
    unicode_at, box_at = raw.FPDFText_GetUnicode, raw.FPDFText_GetLooseCharBox
    rect = raw.FS_RECTF()
    rect_ref = ctypes.byref(rect)
    fonts = _Fonts(text)
    words: list[Word] = []
    letters: list[str] = []
    first = high = 0
    broken = False
    left = bottom = right = top = 0.0

    def finish() -> None:
        word = "".join(letters)
        letters.clear()
        if word:
            words.append(Word(word, rotate(left, bottom, right, top), fonts.at(first), broken))

    for index in range(raw.FPDFText_CountChars(text)):
        code = unicode_at(text, index)
        if code in _SPACES:
            if letters:
                finish()
            continue
        if code > 126 or code < 32:
            if 0xD800 <= code < 0xDC00:
                high = code
                continue
            if 0xDC00 <= code < 0xE000:
                code, high = (0x10000 + ((high - 0xD800) << 10) + code - 0xDC00 if high else 0), 0
            letter = "-" if code == _BREAK else _LIGATURES.get(code) or _printable(code)
            if not letter:
                continue
        else:
            letter = chr(code)
        box_at(text, index, rect_ref)
        if not letters:
            first = index
            left, bottom, right, top = rect.left, rect.bottom, rect.right, rect.top
        else:
            if rect.left < left:
                left = rect.left
            if rect.right > right:
                right = rect.right
            if rect.bottom < bottom:
                bottom = rect.bottom
            if rect.top > top:
                top = rect.top
        letters.append(letter)
        broken = code == _BREAK
        if broken:  # the rest of the word is in the next line, although PDFium joins them
            finish()
            broken = False
    if letters:
        finish()
    return words


def _printable(code: int) -> str:
    """Return the letter, or "" if XML cannot hold it."""
    if code < 0x20 or 0x7F <= code < 0xA0 or code == 0xAD or code > 0x10FFFF or code & 0xFFFE == 0xFFFE:
        return ""
    return chr(code)


class _Fonts:
    """The fonts of one page's letters. Letters in the same font share one object."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._fonts: dict[tuple[bytes, float, int], Font] = {}
        self._buffer = ctypes.create_string_buffer(256)
        self._flags = ctypes.c_int()
        self._matrix = raw.FS_MATRIX()

    def at(self, index: int) -> Font:
        """Return the font of the letter at *index*."""
        text = self._text
        used = raw.FPDFText_GetFontInfo(text, index, self._buffer, 256, ctypes.byref(self._flags))
        name = self._buffer.raw[: used - 1] if 1 < used <= 256 else b""
        size = raw.FPDFText_GetFontSize(text, index)
        if raw.FPDFText_GetMatrix(text, index, ctypes.byref(self._matrix)):
            size *= math.hypot(self._matrix.c, self._matrix.d)
        key = name, _bounded(abs(size)), self._flags.value if used else 0
        font = self._fonts.get(key)
        if font is None:
            font = self._fonts[key] = _font(*key)
        return font


def _font(raw_name: bytes, size: float, flags: int) -> Font:
    name = "".join(_printable(ord(letter)) for letter in raw_name.decode("utf-8", "replace")).strip()
    if name[6:7] == "+" and name[:6].isupper():  # the prefix of an embedded subset of the font
        name = name[7:]
    lower = name.lower()
    return Font(
        name or "unknown",
        size,
        "bold" in lower or "black" in lower or bool(flags & _FORCE_BOLD),
        "italic" in lower or "oblique" in lower or bool(flags & _ITALIC),
    )

"""The mapping `text`: pages, fonts, blocks, lines and words with their boxes, in our own XML vocabulary."""

from __future__ import annotations

from typing import IO

import pypdfium2
from lxml import etree

from systems.converter.mapping.layout import Box, Font, Page
from systems.converter.mapping.pages import read_pages

NAMESPACE = "urn:holdfast:converter:text:1"


def write_text(document: pypdfium2.PdfDocument, _data: bytes, out: IO[bytes]) -> None:
    """Write the text of *document* and its layout to *out*."""
    with etree.xmlfile(out, encoding="utf-8") as xml:
        xml.write_declaration()
        with xml.element("document", {"pages": str(len(document))}, nsmap={None: NAMESPACE}):
            xml.write("\n")
            for page in read_pages(document):
                xml.write(_page(page), pretty_print=True)


def _page(page: Page) -> etree._Element:
    fonts: dict[Font, str] = {}
    root = _element("page", number=str(page.number), width=number(page.width), height=number(page.height))
    font_list = etree.SubElement(root, f"{{{NAMESPACE}}}fonts")
    for block in page.blocks:
        in_block = _under(root, "block", _sides(block.box))
        for line in block.lines:
            in_line = _under(in_block, "line", _sides(line.box))
            for word in line.words:
                if word.font not in fonts:
                    fonts[word.font] = f"p{page.number}f{len(fonts) + 1}"
                _under(in_line, "word", _sides(word.box) | {"font": fonts[word.font]}).text = word.text
    for font, name in fonts.items():
        entry = _under(font_list, "font", {"id": name, "name": font.name, "size": number(font.size)})
        if font.bold:
            entry.set("bold", "true")
        if font.italic:
            entry.set("italic", "true")
    return root


def number(value: float) -> str:
    """Return *value* with at most two decimal places, and without a sign before zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _sides(box: Box) -> dict[str, str]:
    return {
        "x": number(box.left),
        "y": number(box.top),
        "width": number(max(box.width, 0.0)),
        "height": number(max(box.height, 0.0)),
    }


def _element(name: str, **attributes: str) -> etree._Element:
    return etree.Element(f"{{{NAMESPACE}}}{name}", attributes, nsmap={None: NAMESPACE})


def _under(parent: etree._Element, name: str, attributes: dict[str, str]) -> etree._Element:
    return etree.SubElement(parent, f"{{{NAMESPACE}}}{name}", attributes)

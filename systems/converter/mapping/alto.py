"""The mapping `alto`: the layout as ALTO v4, the format that viewers of scanned books and archives read.

ALTO lists its styles before its pages, so the file is read twice: once for the fonts, once for the rest.
Reading twice costs time, but keeping all pages would cost memory.
"""

from __future__ import annotations

from typing import IO

import pypdfium2
from lxml import etree

from systems.converter.mapping.layout import Box, Font, Page
from systems.converter.mapping.pages import read_pages
from systems.converter.mapping.text import number

NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"

_A = f"{{{NAMESPACE}}}"


def write_alto(document: pypdfium2.PdfDocument, _data: bytes, out: IO[bytes]) -> None:
    """Write the layout of *document* to *out* as ALTO."""
    styles = _styles(document)
    with etree.xmlfile(out, encoding="utf-8") as xml:
        xml.write_declaration()
        with xml.element(_A + "alto", {"SCHEMAVERSION": "4.4"}, nsmap={None: NAMESPACE}):
            xml.write("\n")
            xml.write(_description(), pretty_print=True)
            xml.write(_style_list(styles), pretty_print=True)
            with xml.element(_A + "Layout"):
                xml.write("\n")
                for page in read_pages(document):
                    xml.write(_page(page, styles), pretty_print=True)


def _styles(document: pypdfium2.PdfDocument) -> dict[Font, str]:
    styles: dict[Font, str] = {}
    for page in read_pages(document):
        for block in page.blocks:
            for line in block.lines:
                for word in line.words:
                    if word.font not in styles:
                        styles[word.font] = f"font{len(styles) + 1}"
    return styles


def _description() -> etree._Element:
    # ALTO has no point. Its 1/1200 inch would need large numbers everywhere; a "pixel" at 72 to the inch
    # equals a point.
    root = _element("Description")
    etree.SubElement(root, _A + "MeasurementUnit").text = "pixel"
    return root


def _style_list(styles: dict[Font, str]) -> etree._Element:
    root = _element("Styles")
    for font, name in styles.items():
        style = etree.SubElement(root, _A + "TextStyle", ID=name, FONTFAMILY=font.name)
        style.set("FONTSIZE", number(font.size))
        traits = [trait for trait, given in (("bold", font.bold), ("italics", font.italic)) if given]
        if traits:
            style.set("FONTSTYLE", " ".join(traits))
    return root


def _page(page: Page, styles: dict[Font, str]) -> etree._Element:
    size = {"HEIGHT": number(page.height), "WIDTH": number(page.width)}
    name = f"page{page.number}"
    root = _element("Page", ID=name, PHYSICAL_IMG_NR=str(page.number), **size)
    space = etree.SubElement(root, _A + "PrintSpace", HPOS="0", VPOS="0", **size)
    for nth, block in enumerate(page.blocks, 1):
        in_block = etree.SubElement(space, _A + "TextBlock", ID=f"{name}_block{nth}", **_sides(block.box))
        for line in block.lines:
            in_line = etree.SubElement(in_block, _A + "TextLine", **_sides(line.box))
            before: Box | None = None
            for word in line.words:
                if before is not None:
                    gap = {"HPOS": number(before.right), "VPOS": number(before.top)}
                    wide = number(max(word.box.left - before.right, 0.0))
                    etree.SubElement(in_line, _A + "SP", WIDTH=wide, **gap)
                style = {"STYLEREFS": styles[word.font]}
                etree.SubElement(in_line, _A + "String", CONTENT=word.text, **style, **_sides(word.box))
                before = word.box
    return root


def _sides(box: Box) -> dict[str, str]:
    return {
        "HPOS": number(box.left),
        "VPOS": number(box.top),
        "WIDTH": number(max(box.width, 0.0)),
        "HEIGHT": number(max(box.height, 0.0)),
    }


def _element(name: str, **attributes: str) -> etree._Element:
    return etree.Element(_A + name, attributes, nsmap={None: NAMESPACE})

"""The mapping `jats`: an article in the journals' tag suite, as far as it can be told from a PDF."""

from __future__ import annotations

from typing import IO

import pypdfium2
from lxml import etree

from systems.converter.mapping.article import Article, Section, read_article
from systems.converter.mapping.metadata import read_metadata
from systems.converter.mapping.reading import read_pages


def write_jats(document: pypdfium2.PdfDocument, data: bytes, out: IO[bytes]) -> None:
    article = read_article(read_pages(document), read_metadata(data))
    root = _build(article)
    out.write(etree.tostring(root, xml_declaration=True, encoding="utf-8", pretty_print=True))


def _build(article: Article) -> etree._Element:
    root = etree.Element("article", {"dtd-version": "1.3", "article-type": "other"})
    _add_front(root, article)
    body = etree.SubElement(root, "body")
    _add_paragraphs(body, article.opening)
    _add_sections(body, article.sections)
    if article.references_title:
        listed = etree.SubElement(etree.SubElement(root, "back"), "ref-list")
        _add(listed, "title", article.references_title)
        for nth, reference in enumerate(article.references, 1):
            entry = etree.SubElement(listed, "ref", id=f"ref{nth}")
            if reference.label:
                _add(entry, "label", reference.label)
            _add(entry, "mixed-citation", reference.text)
    return root


def _add_front(root: etree._Element, article: Article) -> None:
    meta = etree.SubElement(etree.SubElement(root, "front"), "article-meta")
    if article.title:
        _add(etree.SubElement(meta, "title-group"), "article-title", article.title)
    if article.authors:
        group = etree.SubElement(meta, "contrib-group")
        for name in article.authors:
            _add(etree.SubElement(group, "contrib", {"contrib-type": "author"}), "string-name", name)
    if article.abstract:
        _add_paragraphs(etree.SubElement(meta, "abstract"), article.abstract)


def _add_sections(body: etree._Element, sections: list[Section]) -> None:
    """Nested by level; a level that is left out (1, then 1.1.1) nests only as deep as there are headings."""
    open_ones: list[tuple[int, etree._Element]] = []
    for section in sections:
        while open_ones and open_ones[-1][0] >= section.level:
            open_ones.pop()
        parent = open_ones[-1][1] if open_ones else body
        element = etree.SubElement(parent, "sec")
        _add(element, "title", section.title)
        _add_paragraphs(element, section.paragraphs)
        open_ones.append((section.level, element))


def _add_paragraphs(parent: etree._Element, paragraphs: list[str]) -> None:
    for text in paragraphs:
        _add(parent, "p", text)


def _add(parent: etree._Element, name: str, text: str) -> None:
    etree.SubElement(parent, name).text = text

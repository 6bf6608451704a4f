"""The mapping `jats`: an article in the Journal Article Tag Suite, as far as a PDF shows its structure."""

from __future__ import annotations

from typing import IO

import pypdfium2
from lxml import etree

from systems.converter.mapping.article import Article, Section, read_article
from systems.converter.mapping.metadata import read_metadata
from systems.converter.mapping.pages import read_pages


def write_jats(document: pypdfium2.PdfDocument, data: bytes, out: IO[bytes]) -> None:
    """Write the article in *document* to *out* as JATS."""
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
        list_ = etree.SubElement(etree.SubElement(root, "back"), "ref-list")
        _add(list_, "title", article.references_title)
        for nth, reference in enumerate(article.references, 1):
            entry = etree.SubElement(list_, "ref", id=f"ref{nth}")
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
    """Add the sections, nested by level. A skipped level (1, then 1.1.1) adds no extra element."""
    ancestors: list[tuple[int, etree._Element]] = []
    for section in sections:
        while ancestors and ancestors[-1][0] >= section.level:
            ancestors.pop()
        parent = ancestors[-1][1] if ancestors else body
        element = etree.SubElement(parent, "sec")
        _add(element, "title", section.title)
        _add_paragraphs(element, section.paragraphs)
        ancestors.append((section.level, element))


def _add_paragraphs(parent: etree._Element, paragraphs: list[str]) -> None:
    for text in paragraphs:
        _add(parent, "p", text)


def _add(parent: etree._Element, name: str, text: str) -> None:
    etree.SubElement(parent, name).text = text

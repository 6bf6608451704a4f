"""The title and the authors as the file itself names them: in its XMP packet, else in its information dictionary.

Both come from strangers. The XMP is read without entities, without a network and without a document type, and whatever
is wrong with either of them means only that nothing is known.
"""

from __future__ import annotations

import io
import re
from typing import Any, NamedTuple

import pikepdf
from lxml import etree

_DC = "{http://purl.org/dc/elements/1.1/}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
#: A packet larger than this is not about a title.
_MOST_XMP = 1_000_000
_MOST_TEXT, _MOST_AUTHORS = 500, 100


class Metadata(NamedTuple):
    title: str
    authors: tuple[str, ...]


def read_metadata(data: bytes) -> Metadata:
    try:
        with pikepdf.open(io.BytesIO(data), suppress_warnings=True) as pdf:
            title, authors = _from_xmp(pdf)
            info: Any = pdf.trailer.get("/Info")
            if isinstance(info, pikepdf.Dictionary):
                title = title or clean(str(info.get("/Title", "")))
                authors = authors or split_names(clean(str(info.get("/Author", ""))))
            return Metadata(title, authors[:_MOST_AUTHORS])
    except MemoryError:
        raise
    except (
        Exception
    ):  # a second parser's opinion of a broken file is no reason to refuse what the first could read
        return Metadata("", ())


def _from_xmp(pdf: pikepdf.Pdf) -> tuple[str, tuple[str, ...]]:
    stream: Any = pdf.Root.get("/Metadata")
    if not isinstance(stream, pikepdf.Stream):
        return "", ()
    packet = stream.read_bytes()
    # Neither is found in an honest packet, and without them an XML parser has nothing to blow up.
    if len(packet) > _MOST_XMP or b"<!DOCTYPE" in packet or b"<!ENTITY" in packet:
        return "", ()
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(packet.strip(b"\x00 \r\n\t"), parser)
    except etree.XMLSyntaxError:
        return "", ()
    titles = [clean(item.text or "") for item in root.iterfind(f".//{_DC}title//{_RDF}li")]
    authors = [clean(item.text or "") for item in root.iterfind(f".//{_DC}creator//{_RDF}li")]
    return next(iter(titles), ""), tuple(name for name in authors if name)


def clean(text: str) -> str:
    """One line that XML can hold."""
    kept = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _MOST_TEXT])
    return " ".join(kept.split())[:_MOST_TEXT]


def split_names(text: str) -> tuple[str, ...]:
    """The names in a list of them, as people write it."""
    parts = re.split(r"[;,·&]|\band\b|\bund\b", text)
    return tuple(name for part in parts if (name := part.strip()))

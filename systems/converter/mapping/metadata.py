"""Read the title and the authors from a PDF's metadata: its XMP packet, or else its information dictionary.

Both are untrusted. The XMP is parsed without entities, network access and document type. If the metadata is
invalid, it counts as missing.
"""

from __future__ import annotations

import io
import re
from typing import Any, NamedTuple

import pikepdf
from lxml import etree

_DC = "{http://purl.org/dc/elements/1.1/}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
#: A larger packet is ignored.
_MAX_XMP_BYTES = 1_000_000
_MAX_TEXT, _MAX_AUTHORS = 500, 100


class Metadata(NamedTuple):
    """The title and the authors that a file names, "" and () if it does not."""

    title: str
    authors: tuple[str, ...]


def read_metadata(data: bytes) -> Metadata:
    """Return the title and the authors that the PDF in *data* names."""
    try:
        with pikepdf.open(io.BytesIO(data), suppress_warnings=True) as pdf:
            title, authors = _from_xmp(pdf)
            info: Any = pdf.trailer.get("/Info")
            if isinstance(info, pikepdf.Dictionary):
                title = title or clean(str(info.get("/Title", "")))
                authors = authors or split_names(clean(str(info.get("/Author", ""))))
            return Metadata(title, authors[:_MAX_AUTHORS])
    except MemoryError:
        raise
    except Exception:  # this second parser must not refuse a file that the first one could read
        return Metadata("", ())


def _from_xmp(pdf: pikepdf.Pdf) -> tuple[str, tuple[str, ...]]:
    stream: Any = pdf.Root.get("/Metadata")
    if not isinstance(stream, pikepdf.Stream):
        return "", ()
    packet = stream.read_bytes()
    # An honest packet has neither, and without them entities cannot expand without end.
    if len(packet) > _MAX_XMP_BYTES or b"<!DOCTYPE" in packet or b"<!ENTITY" in packet:
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
    """Return *text* as one line of printable letters, shortened if it is long."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _MAX_TEXT])
    return " ".join(printable.split())[:_MAX_TEXT]


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in a list such as "A, B and C"."""
    parts = re.split(r"[;,·&]|\band\b|\bund\b", text)
    return tuple(name for part in parts if (name := part.strip()))

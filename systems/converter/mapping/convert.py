"""Convert a PDF to XML by a named mapping. Importing this module loads the parsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from systems.converter.mapping.alto import write_alto
from systems.converter.mapping.jats import write_jats
from systems.converter.mapping.pages import open_pdf
from systems.converter.mapping.text import write_text

#: Name → a function that takes the document, the PDF's bytes and a stream, and writes XML to the stream.
_WRITERS: dict[str, Callable[..., None]] = {"text": write_text, "jats": write_jats, "alto": write_alto}


def convert(data: bytes, mapping: str, out: IO[bytes]) -> None:
    """Write the XML of the PDF in *data* to *out*.

    Raise `Refused` if it cannot be read; *out* is then incomplete.
    """
    document = open_pdf(data)
    try:
        _WRITERS[mapping](document, data, out)
    finally:
        document.close()

"""From a PDF to XML by the mapping of a name; loads the parsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from systems.converter.mapping.alto import write_alto
from systems.converter.mapping.jats import write_jats
from systems.converter.mapping.reading import open_pdf
from systems.converter.mapping.text import write_text

#: Name → from the PDF's bytes and the document in them to XML on a stream.
_WRITERS: dict[str, Callable[..., None]] = {"text": write_text, "jats": write_jats, "alto": write_alto}


def convert(data: bytes, mapping: str, out: IO[bytes]) -> None:
    """Write the XML of the PDF in *data*. `Refused` when it cannot be read; *out* is worth nothing then."""
    document = open_pdf(data)
    try:
        _WRITERS[mapping](document, data, out)
    finally:
        document.close()

"""An incremental parser of the upload form. It keeps the fields, and passes the file on in pieces."""

from __future__ import annotations

from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from systems.converter.content import LONGEST_NAME

FILE, LONGEST_FIELD, MAX_PARTS = "file", 1000, 20


class BadForm(Exception):
    """The body is not a form with one file. The message says what to do."""


class Form:
    """A multipart form. Feed it the body, and take the file's bytes from `pending` after each piece."""

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 0 < len(boundary) <= 200:
            raise BadForm("Send the PDF as a form (multipart/form-data), in the field file.")
        self.file_name: str | None = None  #: as the sender gives it, set once the file begins
        self.fields: dict[str, str] = {}
        self.pending = bytearray()  #: bytes of the file that the caller has not taken yet
        self.ended = False  #: the form is complete
        self._parts = 0
        self._name, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._field: str | None = None  #: the field that the current part sets; None for the file
        self._data = bytearray()
        callbacks: Any = {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header,
            "on_headers_finished": self._head,
            "on_part_data": self._piece,
            "on_part_end": self._end,
            "on_end": self._finish,
        }
        self._parser = MultipartParser(boundary, callbacks)

    def feed(self, chunk: bytes) -> None:
        """Parse the next chunk of the body. Raise `BadForm` if it is invalid."""
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise BadForm("The form is malformed; send it again.") from None

    # -- callbacks of the parser
    # --------------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadForm(f"The form has more than {MAX_PARTS} parts; send file and mapping.")
        self._headers.clear()

    def _header(self) -> None:
        self._headers[bytes(self._name).strip().lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _head(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name != FILE:
            self._field = name[:LONGEST_FIELD]
            return
        if self.file_name is not None:
            raise BadForm("Send one file at a time.")
        self._field = None
        self.file_name = options.get(b"filename", b"").decode("utf-8", "replace")

    def _piece(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self.pending += memoryview(data)[start:end]
        else:
            self._data += data[start:end]
            if len(self._data) > LONGEST_FIELD:
                raise BadForm(f"A field of the form is longer than {LONGEST_FIELD} bytes.")

    def _end(self) -> None:
        if self._field is not None:
            self.fields[self._field] = self._data.decode("utf-8", "replace")
            self._data.clear()

    def _finish(self) -> None:
        self.ended = True


def shown_name(name: str | None) -> str:
    """Return a file's name for display, as one line without a path. It is never used as a path."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    return shown(last)[:LONGEST_NAME] or "unnamed.pdf"


def shown(text: str) -> str:
    """Return *text* without invisible letters and those that reverse the direction of the rest."""
    return "".join(letter for letter in text if letter.isprintable()).strip()

"""Checks whether a document can be sent to a model: its name, its metadata and its content (P4)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from systems.reports.codes import Code
from systems.reports.documents import Document
from systems.reports.failures import Trouble

EXTENSIONS = (".txt", ".md", ".csv", ".tsv", ".json", ".xml", ".html", ".htm", ".eml", ".log")
_TYPES = re.compile(
    r"text/[\w.+-]+|application/(json|xml|octet-stream|[\w.-]+\+(json|xml))|binary/octet-stream|message/rfc822"
)
_CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii")
#: How encrypted documents begin whose characters are all text.
_ENCRYPTED = (
    "-----BEGIN PGP MESSAGE-----",
    "-----BEGIN AGE ENCRYPTED FILE-----",
    "-----BEGIN PKCS7-----",
    "U2FsdGVkX1",
)
_CONTROLS = frozenset(chr(code) for code in range(32)) - frozenset("\t\n\r\f\x1b")


def check_name(source: str) -> None:
    """Raise `Trouble` with UNSUPPORTED_TYPE when the name has none of the supported extensions."""
    if not source.lower().endswith(EXTENSIONS):
        raise Trouble(Code.UNSUPPORTED_TYPE, f"the name ends with none of {' '.join(EXTENSIONS)}")


def read_text(document: Document) -> str:
    """Return the text of *document*.

    Raises `Trouble` when it holds no text, or its metadata does not match.
    """
    _check_attributes(document.attributes, document.data)
    try:
        text = document.data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Trouble(Code.NOT_TEXT, "the document is not UTF-8") from None
    if not text.strip():
        raise Trouble(Code.NOT_TEXT, "the document is empty")
    if any(control in text for control in _CONTROLS):
        raise Trouble(Code.NOT_TEXT, "the document is binary")
    if text.lstrip().startswith((*_ENCRYPTED, "%PDF-")):
        raise Trouble(Code.NOT_TEXT, "the document is encrypted, or not of the type its name says")
    return text


def sha256(document: Document) -> str:
    return digest(document.data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_attributes(attributes: Mapping[str, str], data: bytes) -> None:
    kind, _, parameters = attributes.get("content-type", "").lower().partition(";")
    if kind.strip() and not _TYPES.fullmatch(kind.strip()):
        raise Trouble(Code.CORRUPT_METADATA, "the content type is not a text type")
    charset = re.search(r'charset\s*=\s*"?([\w.-]+)', parameters)
    if charset is not None and charset[1] not in _CHARSETS:
        raise Trouble(Code.CORRUPT_METADATA, "the charset is not UTF-8")
    if attributes.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise Trouble(Code.UNSUPPORTED_TYPE, "the document is compressed")
    expected = attributes.get("sha256")
    if expected is not None and expected.lower() != hashlib.sha256(data).hexdigest():
        raise Trouble(Code.CORRUPT_METADATA, "the SHA-256 differs from the stored one")

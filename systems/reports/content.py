"""Whether a document can be sent to a model: its name, what the store says of it, and what is in it (P4)."""

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
#: Text by its characters, and still nothing that can be read.
_ENCRYPTED = (
    "-----BEGIN PGP MESSAGE-----",
    "-----BEGIN AGE ENCRYPTED FILE-----",
    "-----BEGIN PKCS7-----",
    "U2FsdGVkX1",
)
_CONTROLS = frozenset(chr(code) for code in range(32)) - frozenset("\t\n\r\f\x1b")


def check_name(source: str) -> None:
    if not source.lower().endswith(EXTENSIONS):
        raise Trouble(Code.UNSUPPORTED_TYPE, f"its name ends with none of {' '.join(EXTENSIONS)}")


def read_text(document: Document) -> str:
    """The text of *document*. `Trouble` when there is none, or when what the store says does not fit it."""
    _check_attributes(document.attributes, document.data)
    try:
        text = document.data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Trouble(Code.NOT_TEXT, "it is not UTF-8") from None
    if not text.strip():
        raise Trouble(Code.NOT_TEXT, "it is empty")
    if any(control in text for control in _CONTROLS):
        raise Trouble(Code.NOT_TEXT, "it is binary")
    if text.lstrip().startswith((*_ENCRYPTED, "%PDF-")):
        raise Trouble(Code.NOT_TEXT, "it is encrypted, or of another kind than its name says")
    return text


def sha256(document: Document) -> str:
    return digest(document.data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_attributes(said: Mapping[str, str], data: bytes) -> None:
    kind, _, parameters = said.get("content-type", "").lower().partition(";")
    if kind.strip() and not _TYPES.fullmatch(kind.strip()):
        raise Trouble(Code.CORRUPT_METADATA, "its content type is not that of text")
    charset = re.search(r'charset\s*=\s*"?([\w.-]+)', parameters)
    if charset is not None and charset[1] not in _CHARSETS:
        raise Trouble(Code.CORRUPT_METADATA, "its charset is not UTF-8")
    if said.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise Trouble(Code.UNSUPPORTED_TYPE, "it is compressed")
    wanted = said.get("sha256")
    if wanted is not None and wanted.lower() != hashlib.sha256(data).hexdigest():
        raise Trouble(Code.CORRUPT_METADATA, "its SHA-256 is not the one it was stored with")

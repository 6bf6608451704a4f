"""Upload a document to the first document root, below the folder of its owner."""

from __future__ import annotations

import hashlib

from systems.reports.codes import Code
from systems.reports.content import check_name, read_text
from systems.reports.documents import Document, Documents
from systems.reports.failures import Trouble

LONGEST_NAME = 120


async def store_document(documents: Documents, owner: str, name: str, data: bytes) -> str:
    """Store *data* and return its address, which names its content: the same document is stored once.

    Raises:
        Trouble: The name or the content is not that of a document that can be read here.
    """
    shown = shown_name(name)
    check_name(shown)
    read_text(Document(data, "", {}))
    place, key = documents.find(f"{owner}/{hashlib.sha256(data).hexdigest()[:16]}/{shown}")
    await place.create(key, data)
    return key


def shown_name(name: str) -> str:
    """Return the last part of *name* without letters that cannot be seen. Raises `Trouble` if none is left."""
    last = name.replace("\\", "/").rpartition("/")[2]
    shown = "".join(letter for letter in last if letter.isprintable()).strip()[-LONGEST_NAME:]
    if not shown.strip("."):
        raise Trouble(Code.INVALID_SOURCE, "the document has no name")
    return shown

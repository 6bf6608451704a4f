"""What an upload may be, told by its content alone: never by its name or by what the sender says of it."""

from __future__ import annotations

#: The largest PDF that is taken; a file of exactly this size still is.
MAX_BYTES = 52_428_800
#: Of what people read of an upload, in characters.
LONGEST_MAPPING, LONGEST_NAME = 100, 120

#: How much of the head `is_pdf` looks at, and how much of the tail `is_whole`.
HEAD_BYTES, TAIL_BYTES = 1024, 1024

_BLANKS = b"\xef\xbb\xbf \t\r\n\x00"


def is_pdf(head: bytes) -> bool:
    """Whether a file that begins with *head* is a PDF.

    The header must come first, only blanks before it. Readers that accept it anywhere in the first kilobyte let through
    files that are a web page or an archive as well.
    """
    return head[:HEAD_BYTES].lstrip(_BLANKS).startswith(b"%PDF-")


def is_whole(tail: bytes) -> bool:
    """Whether a PDF that ends with *tail* has its end: one that was cut off is refused, not read as a shorter one."""
    return b"%%EOF" in tail[-TAIL_BYTES:]

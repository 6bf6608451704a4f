"""The limits of an upload, and the checks of its content.

The name and type that the sender gives are ignored.
"""

from __future__ import annotations

#: The size of the largest accepted PDF, in bytes.
MAX_BYTES = 52_428_800
#: The longest mapping and the longest name of an upload, in characters.
LONGEST_MAPPING, LONGEST_NAME = 100, 120

#: The bytes that `is_pdf` reads at the beginning, and `is_whole` at the end.
HEAD_BYTES, TAIL_BYTES = 1024, 1024

_BLANKS = b"\xef\xbb\xbf \t\r\n\x00"


def is_pdf(head: bytes) -> bool:
    """Return whether a file that begins with *head* is a PDF.

    Only blanks may precede the header. Readers that accept it anywhere in the first kilobyte let through
    files that are a web page or an archive at the same time.
    """
    return head[:HEAD_BYTES].lstrip(_BLANKS).startswith(b"%PDF-")


def is_whole(tail: bytes) -> bool:
    """Return whether a PDF that ends with *tail* is complete.

    One that was cut off is refused, not read in part.
    """
    return b"%%EOF" in tail[-TAIL_BYTES:]

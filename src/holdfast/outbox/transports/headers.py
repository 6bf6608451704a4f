"""Message headers for targets whose headers are lines, in which a line break would start another header."""

from __future__ import annotations

import re
from urllib.parse import quote

from holdfast.outbox.model import Message, Undelivered
from holdfast.outbox.transport import content_type, own_headers

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]{0,4000}")
#: Headers of the connection, not of the message.
_CONNECTION_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
)


def as_lines(message: Message) -> dict[str, str] | Undelivered:
    """Return the headers and content type by lower-case names, or `Undelivered` if they cannot be sent."""
    headers = {"content-type": content_type(message)}
    for name, value in own_headers(message).items():
        if not _NAME.fullmatch(name) or name.lower() in _CONNECTION_HEADERS:
            return Undelivered(f"the header {name[:40]!r} cannot be sent to this target", lasting=True)
        headers[name.lower()] = value
    headers["holdfast-id"] = quote(message.id, safe="!#$&'()*+,/:;=?@[]~ ")  # ASCII as it is
    for name, value in headers.items():
        if not _VALUE.fullmatch(value):
            return Undelivered(f"the header {name} has characters that cannot be sent", lasting=True)
    return headers

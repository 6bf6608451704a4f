"""Headers of messages where a line break would be the end of one and the beginning of another."""

from __future__ import annotations

import re
from urllib.parse import quote

from holdfast.domain.outbox import Message, Undelivered
from holdfast.engine.transport import content_type, own_headers

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]{0,4000}")
#: They belong to the connection, not to the message.
_NOT_OURS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
)


def as_lines(message: Message) -> dict[str, str] | Undelivered:
    """The headers by lower-case names, the content type among them; or why they cannot be sent."""
    found = {"content-type": content_type(message)}
    for name, value in own_headers(message).items():
        if not _NAME.fullmatch(name) or name.lower() in _NOT_OURS:
            return Undelivered(f"the header {name[:40]!r} cannot be sent to this target", lasting=True)
        found[name.lower()] = value
    found["holdfast-id"] = quote(message.id, safe="!#$&'()*+,/:;=?@[]~ ")  # ASCII as it is
    for name, value in found.items():
        if not _VALUE.fullmatch(value):
            return Undelivered(f"the header {name} has characters that cannot be sent", lasting=True)
    return found

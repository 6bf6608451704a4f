"""The dedupe digest of a call, made from the key that its caller gives or from all of its arguments."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, get_args

import msgspec

from holdfast.errors import UsageError

#: Whose calls are compared: those of the same owner, or those of the task with any owner.
DedupeScope = Literal["owner", "task"]
SCOPES: tuple[str, ...] = get_args(DedupeScope)


def by_key(task: str, owner: str | None, key: str | None, scope: str) -> bytes | None:
    """Return the digest of a dedupe key in its scope, or None without a key."""
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise UsageError(f"dedupe_key is {key!r:.60}; it is a text, and not an empty one")
    return _digest(task, owner, scope, key)


def by_content(task: str, owner: str | None, payload: str, scope: str) -> bytes:
    """Return the digest of the arguments in their scope, independent of their order."""
    arguments = msgspec.json.encode(msgspec.json.decode(payload), order="deterministic")
    return _digest(task, owner, scope, "\x1f" + arguments.decode())


def _digest(task: str, owner: str | None, scope: str, what: str) -> bytes:
    owner_part = owner if scope == "owner" else None
    parts = "\x1f".join((task, owner_part or "", what))
    return blake2b(parts.encode(errors="surrogatepass"), digest_size=16).digest()

"""By what a call is told to be the same as another: a key that its caller names, or all that it was called with."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from holdfast.errors import UsageError

#: Whose calls are compared: those of the same owner, or those of the task with any owner.
SCOPES = ("owner", "task")


def by_key(task: str, owner: str | None, key: str | None, scope: str) -> bytes | None:
    """The digest of a dedupe key in its scope."""
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise UsageError(f"dedupe_key is {key!r:.60}; it is a text, and not an empty one")
    return _digest(task, owner, scope, key)


def by_content(task: str, owner: str | None, payload: str, scope: str) -> bytes:
    """The digest of the arguments in their scope, in whatever order they were given."""
    said = msgspec.json.encode(msgspec.json.decode(payload), order="deterministic")
    return _digest(task, owner, scope, "\x1f" + said.decode())


def _digest(task: str, owner: str | None, scope: str, what: str) -> bytes:
    whose = owner if scope == "owner" else None
    parts = "\x1f".join((task, whose or "", what))
    return blake2b(parts.encode(errors="surrogatepass"), digest_size=16).digest()

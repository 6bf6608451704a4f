"""Concurrency keys: a key limits how many of its jobs run at a time.

Users name keys of their own. A limit per owner is implemented as an internal key for each owner.
"""

from __future__ import annotations

from hashlib import blake2b

#: Marks internal keys. Keys of users are printable, so they cannot contain it.
_MARK = "\x1f"
#: Longer keys are replaced by a digest, because an index can hold only so much.
_LONGEST = 500


def owner_key(task: str, owner: str) -> str:
    """Return the internal key that all jobs of *owner* in *task* share."""
    key = _MARK + task + _MARK + owner
    if len(key) <= _LONGEST:
        return key
    return _MARK + blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def own_key(key: str | None) -> str | None:
    """Return *key* if a user named it, or None for an internal key."""
    return None if key is None or key.startswith(_MARK) else key

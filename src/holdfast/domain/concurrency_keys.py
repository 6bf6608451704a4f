"""Keys limit how many of their jobs run at a time.

Users name their own keys; a limit per owner is an internal key for each owner.
"""

from __future__ import annotations

from hashlib import blake2b

#: No key of a user's holds it: theirs are printable.
_OURS = "\x1f"
#: Longer ones are shortened: an index can hold only so much.
_LONGEST = 500


def owner_key(task: str, owner: str) -> str:
    """The key that all jobs of this owner in this task share."""
    key = _OURS + task + _OURS + owner
    if len(key) <= _LONGEST:
        return key
    return _OURS + blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def own_key(key: str | None) -> str | None:
    """A job's key as people know it: only what they named themselves."""
    return None if key is None or key.startswith(_OURS) else key

"""The key of an app, from which it derives the secrets of webhooks and signs the sessions of the dashboard.

It is the setting `secret` (`HOLDFAST_SECRET`). Without one, an app on SQLite keeps a random key in a file
beside its database, for this user only. On PostgreSQL processes run on many machines, so the setting is
required.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from holdfast.errors import Conflict, StoreUnavailable

_HOW_TO_MAKE = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"


def keys_of(secret: str) -> tuple[bytes, ...]:
    """Return the keys in the setting `secret`, which are separated by commas, the newest first."""
    return tuple(sha256(b"holdfast\0" + part.strip().encode()).digest() for part in secret.split(","))


def key_beside(database: Path, random: Callable[[], bytes]) -> tuple[bytes, ...]:
    """Return the key in the file beside a SQLite *database*; create the file from *random* bytes if needed.

    When several processes create it at once, all use the same one. Raises `StoreUnavailable` when the file
    cannot be read or created.
    """
    file = database.with_name(database.name + ".secret")
    try:
        with contextlib.suppress(FileNotFoundError):
            return keys_of(file.read_text())
        draft = file.with_name(f".{file.name}.{random().hex()[:16]}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "w") as opened:
                opened.write(base64.urlsafe_b64encode(random()).decode())
                opened.flush()
                os.fsync(opened.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, file)
        finally:
            draft.unlink()
        return keys_of(file.read_text())
    except OSError as error:
        reason = f"{file.name} cannot be read or created ({error.strerror}); set HOLDFAST_SECRET instead"
        raise StoreUnavailable(reason) from error


def no_key() -> tuple[bytes, ...]:
    """Raise `Conflict`: the feature needs a key, and this store cannot keep one."""
    raise Conflict(
        "webhooks and sessions of the dashboard need a key on PostgreSQL; set HOLDFAST_SECRET, the same in every process of"
        " this app;"
        f" make one with {_HOW_TO_MAKE}"
    )


def temporary_key(random: Callable[[], bytes]) -> tuple[bytes, ...]:
    """Return a random key for a store in memory. It is valid until the process ends."""
    return (random(),)

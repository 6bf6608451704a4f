"""Which SQLite can be relied on."""

from __future__ import annotations

#: Below this, SQLite can lose committed pages when a WAL is reset at a bad moment.
SAFE = (3, 51, 3)


def caution(version: str) -> str | None:
    """What is to be said of this *version*, if anything."""
    if tuple(int(part) for part in version.split(".") if part.isdigit()) >= SAFE:
        return None
    return (
        f"SQLite {version} is older than {'.'.join(map(str, SAFE))}: a WAL reset at a bad moment can lose committed data"
        " (very rare); use a Python that is built with a newer one"
    )

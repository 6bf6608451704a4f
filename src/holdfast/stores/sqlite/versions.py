"""Check which version of SQLite is safe."""

from __future__ import annotations

#: Below this, SQLite can lose committed pages when a WAL is reset at a bad moment.
SAFE = (3, 51, 3)


def caution(version: str) -> str | None:
    """Return a warning about this *version*, or None."""
    if tuple(int(part) for part in version.split(".") if part.isdigit()) >= SAFE:
        return None
    return (
        f"SQLite {version} is older than {'.'.join(map(str, SAFE))}: a WAL reset at a bad moment can lose committed data"
        " (very rare); use a Python that is built with a newer one"
    )

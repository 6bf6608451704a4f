"""The embedded store: one file, no server, durable, several processes on one machine."""

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

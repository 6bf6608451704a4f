"""The store for many machines: PostgreSQL 15 or newer, in a schema of its own inside the user's database."""

from holdfast.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

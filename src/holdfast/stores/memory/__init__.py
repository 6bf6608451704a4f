"""The store for tests: every rule of the contract in plain Python, and nothing kept after the process.

It is also the easiest place to read what the verbs mean; the SQL of the other stores says the same.
"""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]

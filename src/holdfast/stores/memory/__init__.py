"""The store for tests: every rule of the contract in plain Python, and nothing is stored after the process ends.

It is also the easiest place to read what the verbs mean.
"""

from holdfast.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]

"""Which tasks are the engine's own. Pure."""

from __future__ import annotations

from typing import Protocol

#: What the names of the engine's own tasks and queues begin with. An app cannot declare a task of such a name.
PREFIX = "holdfast."


def is_internal(name: str) -> bool:
    """Whether a task or a queue of this *name* is the engine's own."""
    return name.startswith(PREFIX)


class Filter(Protocol):
    """What `JobFilter` and `DeadLetterFilter` have in common."""

    @property
    def internal(self) -> bool: ...
    @property
    def ids(self) -> tuple[str, ...]: ...
    @property
    def tasks(self) -> tuple[str, ...]: ...
    @property
    def queues(self) -> tuple[str, ...]: ...


def hides_internal(where: Filter) -> bool:
    """Whether a filter leaves the engine's own jobs out: it does unless it asks for them, by `internal` or by name."""
    if where.internal or where.ids or where.tasks:
        return False
    return not any(map(is_internal, where.queues))

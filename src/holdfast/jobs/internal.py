"""Distinguish the engine's own tasks and queues from those of the app. Pure."""

from __future__ import annotations

from typing import Protocol

#: The prefix of the engine's own tasks and queues. An app cannot declare a task with it.
PREFIX = "holdfast."


def is_internal(name: str) -> bool:
    """Return whether the task or queue *name* is one of the engine's own."""
    return name.startswith(PREFIX)


class Filter(Protocol):
    """The fields that `JobFilter` and `DeadLetterFilter` have in common."""

    @property
    def internal(self) -> bool: ...
    @property
    def ids(self) -> tuple[str, ...]: ...
    @property
    def tasks(self) -> tuple[str, ...]: ...
    @property
    def queues(self) -> tuple[str, ...]: ...


def hides_internal(where: Filter) -> bool:
    """Return whether the filter excludes the engine's own jobs.

    It does unless it includes them by `internal`, or names jobs, tasks or an internal queue.
    """
    if where.internal or where.ids or where.tasks:
        return False
    return not any(map(is_internal, where.queues))

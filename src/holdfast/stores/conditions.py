"""WHERE clauses, put together from what a filter asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.domain.job import DeadLetterFilter, JobFilter


class Condition:
    """A clause and its parameters, as they are added: all must hold. The dialect here is SQLite's."""

    def __init__(self) -> None:
        self._parts: list[str] = ["true"]
        self.parameters: list[Any] = []

    def __str__(self) -> str:
        return " AND ".join(self._parts)

    def place(self, value: Any) -> str:
        """Add a parameter; how the statement speaks of it."""
        self.parameters.append(value)
        return "?"

    def add(self, condition: str, *values: Any) -> None:
        """Each `?` of *condition* is the next of *values*."""
        for value in values:
            condition = condition.replace("?", self.place(value), 1)
        self._parts.append(condition)

    def equal(self, column: str, value: str | None) -> None:
        if value is not None:
            self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *map(str, values))


def narrow_jobs(condition: Condition, where: JobFilter) -> None:
    """By the columns of the view `jobs`; tag and arguments are looked up differently in each dialect."""
    condition.among("state", where.states)
    condition.among("task", where.tasks)
    condition.among("queue", where.queues)
    condition.equal("owner", where.owner)


def narrow_dead_letters(condition: Condition, where: DeadLetterFilter) -> None:
    """Over `dead_letter d`, `job j` and `lane l`; ids are looked up differently in each dialect."""
    condition.among("l.task", where.tasks)
    condition.among("l.queue", where.queues)
    condition.among("d.reason", where.reasons)
    condition.equal("d.fingerprint", where.fingerprint)
    condition.equal("j.owner", where.owner)

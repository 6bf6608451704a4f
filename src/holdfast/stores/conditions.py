"""Make WHERE clauses from filters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.jobs.internal import PREFIX, hides_internal
from holdfast.jobs.job import DeadLetterFilter

#: The most jobs that are read for one page. A filter that few jobs match is answered in several pages, and each is quick.
MOST_READ = 15_000
#: The same if the arguments of each job have to be searched.
MOST_SEARCHED = 4_000
#: The condition that the task of a lane is internal. LIKE would ignore case on SQLite.
INTERNAL = f"substr(task, 1, {len(PREFIX)}) = '{PREFIX}'"


class Condition:
    """Conditions that must all hold, with their parameters. This class writes SQLite's dialect."""

    sign = "?"  #: the character before the number of a parameter

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.parameters: list[Any] = []

    def __str__(self) -> str:
        return " AND ".join(self._parts) or "true"

    def __bool__(self) -> bool:
        return bool(self._parts)

    def place(self, value: Any) -> str:
        """Add a parameter and return its name in the statement."""
        self.parameters.append(value)
        return f"{self.sign}{len(self.parameters)}"

    def fit(self, statement: str) -> tuple[str, list[Any]]:
        """Return *statement* with the parameters that it uses: the drivers refuse any others."""
        used: dict[str, int] = {}
        pattern = re.escape(self.sign) + r"(\d+)"
        fitted = re.sub(pattern, lambda m: f"{self.sign}{used.setdefault(m[1], len(used) + 1)}", statement)
        return fitted, [self.parameters[int(number) - 1] for number in used]

    def moment(self, value: datetime) -> Any:
        """Encode a moment for the database."""
        return value

    def add(self, condition: str, *values: Any) -> None:
        """Add a condition in which each `?` stands for the next of *values*."""
        first, *rest = condition.split("?")
        placed = (self.place(value) + part for value, part in zip(values, rest, strict=True))
        self.add_placed(first + "".join(placed))

    def add_placed(self, condition: str) -> None:
        """Add a condition whose parameters were added by `place`."""
        self._parts.append(condition)

    def equal(self, column: str, value: str | None) -> None:
        if value is not None:
            self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *map(str, values))

    def identified(self, column: str, ids: Sequence[str]) -> None:
        """Add that *column* is one of these ids of jobs. Without ids, add nothing."""
        self.among(column, ids)

    def behind(self, column: str, cursor: str) -> None:
        """Add that the id of a job in *column* comes after *cursor*. Raise `UsageError` if *cursor* is not an id."""
        self.add(f"{column} > ?", cursor)

    def within(self, column: str, after: datetime | None, before: datetime | None) -> None:
        if after is not None:
            self.add(f"{column} >= ?", self.moment(after))
        if before is not None:
            self.add(f"{column} < ?", self.moment(before))


def narrow_dead_letters(condition: Condition, where: DeadLetterFilter) -> None:
    """Add what a filter asks of `dead_letter d`, `job j` and `lane l`, except for ids."""
    condition.among("l.task", where.tasks)
    condition.among("l.queue", where.queues)
    condition.among("d.code", where.codes)
    condition.equal("d.fingerprint", where.fingerprint)
    condition.equal("j.owner", where.owner)
    condition.within("d.at", where.died_after, where.died_before)
    if hides_internal(where):
        condition.add(f"NOT ({INTERNAL.replace('task', 'l.task')})")

"""WHERE clauses, put together from what a filter asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.internal import PREFIX, hides_internal
from holdfast.domain.job import DeadLetterFilter

#: How many jobs are looked at for one page. A filter that few jobs match is answered in several pages, none of which
#: takes long.
LOOK_AT = 15_000
#: The same where each of them has to be read through for its arguments.
LOOK_INTO = 4_000


#: Over a lane: its task is one of the engine's own. Not LIKE, which SQLite reads without regard to case.
INTERNAL = f"substr(task, 1, {len(PREFIX)}) = '{PREFIX}'"


class Condition:
    """A clause and its parameters, as they are added: all must hold. The dialect here is SQLite's."""

    sign = "?"  #: what the number of a parameter stands behind

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.parameters: list[Any] = []

    def __str__(self) -> str:
        return " AND ".join(self._parts) or "true"

    def __bool__(self) -> bool:
        return bool(self._parts)

    def place(self, value: Any) -> str:
        """Add a parameter; how the statement speaks of it, wherever it does."""
        self.parameters.append(value)
        return f"{self.sign}{len(self.parameters)}"

    def fit(self, statement: str) -> tuple[str, list[Any]]:
        """*statement* with the parameters that it speaks of, and no others: the drivers insist on that."""
        used: dict[str, int] = {}
        pattern = re.escape(self.sign) + r"(\d+)"
        fitted = re.sub(pattern, lambda m: f"{self.sign}{used.setdefault(m[1], len(used) + 1)}", statement)
        return fitted, [self.parameters[int(number) - 1] for number in used]

    def moment(self, value: datetime) -> Any:
        """As the database keeps it."""
        return value

    def add(self, condition: str, *values: Any) -> None:
        """Each `?` of *condition* is the next of *values*."""
        first, *rest = condition.split("?")
        placed = (self.place(value) + part for value, part in zip(values, rest, strict=True))
        self.add_placed(first + "".join(placed))

    def add_placed(self, condition: str) -> None:
        """One whose parameters have their places."""
        self._parts.append(condition)

    def equal(self, column: str, value: str | None) -> None:
        if value is not None:
            self.add(f"{column} = ?", value)

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *map(str, values))

    def within(self, column: str, after: datetime | None, before: datetime | None) -> None:
        if after is not None:
            self.add(f"{column} >= ?", self.moment(after))
        if before is not None:
            self.add(f"{column} < ?", self.moment(before))


def narrow_dead_letters(condition: Condition, where: DeadLetterFilter) -> None:
    """Over `dead_letter d`, `job j` and `lane l`; ids are looked up differently in each dialect."""
    condition.among("l.task", where.tasks)
    condition.among("l.queue", where.queues)
    condition.among("d.code", where.codes)
    condition.equal("d.fingerprint", where.fingerprint)
    condition.equal("j.owner", where.owner)
    condition.within("d.at", where.died_after, where.died_before)
    if hides_internal(where):
        condition.add(f"NOT ({INTERNAL.replace('task', 'l.task')})")
